#include "evaluation/LearningCurve.h"

#include <algorithm>

#include <ATen/ATen.h>

namespace adtrain {
namespace {

std::vector<double> numbers(const at::Tensor& tensor) {
  const at::Tensor dense = tensor.contiguous();
  return {dense.const_data_ptr<double>(), dense.const_data_ptr<double>() + dense.numel()};
}

}  // namespace

LearningCurve LearningCurve::without_bounds(const InContextReturns& measured) {
  const at::Tensor by_task = measured.returns.to(at::kDouble).mean(1);
  const at::Tensor mean = by_task.mean(0);
  const int64_t last = std::min<int64_t>(10, measured.episodes());

  LearningCurve curve;
  curve.mean = numbers(mean);
  curve.std = numbers(by_task.std(0, /*unbiased=*/false));
  curve.last10_mean = mean.narrow(0, measured.episodes() - last, last).mean().item<double>();
  return curve;
}

LearningCurve LearningCurve::of(const InContextReturns& measured, const TaskFamily& family) {
  LearningCurve curve = without_bounds(measured);
  const auto tasks = static_cast<double>(measured.tasks.size());
  double random = 0, best = 0;
  for (const int64_t task : measured.tasks) {
    random += family.random_return(task) / tasks;
    best += family.best_return(task) / tasks;
  }
  curve.random_floor = random;
  curve.oracle = best;
  return curve;
}

}  // namespace adtrain
