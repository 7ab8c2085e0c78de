#include "training/HeldOutLoss.h"

#include <algorithm>
#include <limits>
#include <numeric>
#include <vector>

#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>

namespace adtrain {

HeldOutLoss::HeldOutLoss(const BatchAssembler& windows, AlgorithmDistillation& model,
                         Communicator& communicator, int64_t batch)
    : windows_(windows), model_(model), communicator_(communicator), batch_(batch) {}

void HeldOutLoss::add(int64_t first, int64_t end, LossSums& sums) const {
  if (first >= end) return;
  const at::NoGradGuard no_grad;
  std::vector<int64_t> samples(static_cast<size_t>(end - first));
  std::iota(samples.begin(), samples.end(), first);
  const LossPositions positions = windows_.packed() ? LossPositions::kAll : LossPositions::kLast;
  const Batch batch = windows_.assemble(samples).to(model_.parameters().flat().device());
  sums.add(model_.loss(batch, positions, /*training=*/false));
}

void HeldOutLoss::measure_first_batch() {
  LossSums sums(model_.parameters().flat().device());
  add(0, std::min(batch_, windows_.samples()), sums);
  sums.take_merged(communicator_);
}

std::optional<LossFigures> HeldOutLoss::measure(const GoesOn& goes_on) {
  const int64_t rank = communicator_.rank(), world = communicator_.world_size();
  const int64_t first = windows_.samples() * rank / world, end = windows_.samples() * (rank + 1) / world;
  // Where shares differ, some rank has no windows in the last pass, and agrees with the others all the same.
  const int64_t largest_share = (windows_.samples() + world - 1) / world;
  LossSums sums(model_.parameters().flat().device());
  for (int64_t done = 0; done < largest_share; done += batch_) {
    add(first + done, std::min(first + done + batch_, end), sums);
    const int64_t reached = std::min(done + batch_, largest_share);
    if (!goes_on(static_cast<double>(reached) / static_cast<double>(largest_share))) return std::nullopt;
  }
  LossFigures figures = sums.take_merged(communicator_);
  // A mean over only some of the windows would not be this figure.
  if (figures.non_finite_batches > 0) figures.loss = std::numeric_limits<double>::quiet_NaN();
  return figures;
}

}  // namespace adtrain
