#include "training/LossSums.h"

#include <cmath>
#include <limits>

#include <ATen/ATen.h>
#include <c10/cuda/CUDAGuard.h>
#include <c10/cuda/CUDAStream.h>

#include "kernels/loss/LossSumsKernel.h"

namespace adtrain {

LossSums::LossSums(at::Device device) : sums_(at::zeros({4}, at::TensorOptions(device).dtype(at::kDouble))) {}

void LossSums::add(const AlgorithmDistillation::Loss& loss) {
  if (sums_.is_cuda()) {
    const c10::cuda::CUDAGuard guard(sums_.device());
    add_loss(sums_.mutable_data_ptr<double>(), loss.sum.const_data_ptr<float>(),
             loss.correct.const_data_ptr<int64_t>(), loss.targets, c10::cuda::getCurrentCUDAStream());
    return;
  }
  const double cross_entropy = loss.sum.detach().item<double>();
  if (!std::isfinite(cross_entropy)) {
    sums_[3].add_(1);
    return;
  }
  sums_[0].add_(cross_entropy);
  sums_[1].add_(loss.correct);
  sums_[2].add_(loss.targets);
}

LossFigures LossSums::take_merged(Communicator& communicator) {
  communicator.synchronize();
  at::Tensor totals = sums_.to(at::kCPU, at::kDouble, /*non_blocking=*/false, /*copy=*/true);
  sums_.zero_();
  communicator.all_reduce(totals, ReduceOp::kSum);

  const double* values = totals.const_data_ptr<double>();
  LossFigures figures;
  figures.targets = static_cast<int64_t>(values[2]);
  figures.non_finite_batches = static_cast<int64_t>(values[3]);
  if (figures.targets > 0) {
    figures.loss = values[0] / values[2];
    figures.accuracy = values[1] / values[2];
  } else if (figures.non_finite_batches > 0) {
    figures.loss = figures.accuracy = std::numeric_limits<double>::quiet_NaN();
  }
  return figures;
}

}  // namespace adtrain
