#include "training/LossSums.h"

#include <cmath>
#include <limits>

#include <ATen/ATen.h>
#include <c10/cuda/CUDAGuard.h>
#include <c10/cuda/CUDAStream.h>

#include "kernels/loss/LossSumsKernel.h"

namespace adtrain {

LossSums::LossSums(at::Device device) : sums_(at::zeros({5}, at::TensorOptions(device).dtype(at::kDouble))) {}

void LossSums::add(const AlgorithmDistillation::Loss& loss) {
  if (sums_.is_cuda()) {
    const c10::cuda::CUDAGuard guard(sums_.device());
    add_loss(sums_.mutable_data_ptr<double>(), loss.sum.const_data_ptr<float>(),
             loss.correct.defined() ? loss.correct.const_data_ptr<int64_t>() : nullptr, loss.targets,
             loss.counted.defined() ? loss.counted.const_data_ptr<int64_t>() : nullptr,
             c10::cuda::getCurrentCUDAStream());
    return;
  }
  if (loss.correct.defined()) sums_[3].add_(1);
  const double sum = loss.sum.detach().item<double>();
  if (!std::isfinite(sum)) {
    sums_[4].add_(1);
    return;
  }
  sums_[0].add_(sum);
  if (loss.correct.defined()) sums_[1].add_(loss.correct);
  if (loss.counted.defined()) {
    sums_[2].add_(loss.counted);
  } else {
    sums_[2].add_(loss.targets);
  }
}

LossFigures LossSums::take_merged(Communicator& communicator) {
  communicator.synchronize();
  at::Tensor totals = sums_.to(at::kCPU, at::kDouble, /*non_blocking=*/false, /*copy=*/true);
  sums_.zero_();
  communicator.all_reduce(totals, ReduceOp::kSum);

  const double* values = totals.const_data_ptr<double>();
  LossFigures figures;
  figures.targets = static_cast<int64_t>(values[2]);
  figures.non_finite_batches = static_cast<int64_t>(values[4]);
  if (figures.targets == 0 && figures.non_finite_batches == 0) return figures;
  const auto mean = [&](double sum) {
    return figures.targets > 0 ? sum / values[2] : std::numeric_limits<double>::quiet_NaN();
  };
  figures.loss = mean(values[0]);
  if (values[3] > 0) figures.accuracy = mean(values[1]);
  return figures;
}

}  // namespace adtrain
