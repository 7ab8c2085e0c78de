#include "training/LossSums.h"

#include <utility>

#include <ATen/ATen.h>

namespace adtrain {

void LossSums::add(const AlgorithmDistillation::Loss& loss) {
  const at::Tensor sums = at::stack({loss.sum.detach().to(at::kDouble), loss.correct.to(at::kDouble)});
  sums_ = sums_.defined() ? sums_.add_(sums) : sums;
  targets_ += loss.targets;
}

LossFigures LossSums::take_merged(Communicator& communicator) {
  at::Tensor totals = at::zeros({3}, at::kDouble);
  if (sums_.defined()) totals.narrow(0, 0, 2).copy_(sums_);
  totals[2] = static_cast<double>(targets_);
  communicator.all_reduce(totals, ReduceOp::kSum);
  sums_ = at::Tensor();
  targets_ = 0;

  const double* values = totals.const_data_ptr<double>();
  LossFigures figures;
  figures.targets = static_cast<int64_t>(values[2]);
  if (figures.targets > 0) {
    figures.loss = values[0] / values[2];
    figures.accuracy = values[1] / values[2];
  }
  return figures;
}

}  // namespace adtrain
