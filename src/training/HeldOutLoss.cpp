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

LossSums HeldOutLoss::sums_of(int64_t first, int64_t end) const {
  const at::NoGradGuard no_grad;
  const at::Device device = model_.parameters().flat().device();
  const LossPositions positions = windows_.packed() ? LossPositions::kAll : LossPositions::kLast;
  LossSums sums(device);
  std::vector<int64_t> samples;
  for (; first < end; first += batch_) {
    samples.resize(static_cast<size_t>(std::min(batch_, end - first)));
    std::iota(samples.begin(), samples.end(), first);
    sums.add(model_.loss(windows_.assemble(samples).to(device), positions, /*training=*/false));
  }
  return sums;
}

void HeldOutLoss::measure_first_batch() {
  sums_of(0, std::min(batch_, windows_.samples())).take_merged(communicator_);
}

LossFigures HeldOutLoss::measure() {
  const int64_t rank = communicator_.rank();
  const int64_t world = communicator_.world_size();
  LossSums sums = sums_of(windows_.samples() * rank / world, windows_.samples() * (rank + 1) / world);
  LossFigures figures = sums.take_merged(communicator_);
  // A mean over only some of the windows would not be this figure.
  if (figures.non_finite_batches > 0) figures.loss = std::numeric_limits<double>::quiet_NaN();
  return figures;
}

}  // namespace adtrain
