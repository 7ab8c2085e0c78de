#include "checkpoint/TensorStatistics.h"

#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>
#include <fmt/format.h>

#include "base/Error.h"

namespace adtrain {

TensorStatistics TensorStatistics::of(const at::Tensor& tensor) {
  const at::NoGradGuard no_grad;
  const at::Tensor all = tensor.detach().cpu().flatten().to(at::kDouble);
  const at::Tensor finite = all.masked_select(all.isfinite());
  TensorStatistics found;
  found.values = all.numel();
  found.not_finite = all.numel() - finite.numel();
  if (finite.numel() == 0) return found;
  found.minimum = finite.min().item<double>();
  found.maximum = finite.max().item<double>();
  found.mean = finite.mean().item<double>();
  found.deviation = finite.std(/*unbiased=*/false).item<double>();
  return found;
}

void expect_finite(const std::vector<NamedTensor>& tensors, const std::string& whose) {
  for (const auto& [name, tensor] : tensors) {
    const TensorStatistics found = TensorStatistics::of(tensor);
    if (found.not_finite == 0) continue;
    throw CheckpointError(fmt::format("{}{} of {} values of '{}' are NaN or infinite", whose,
                                      found.not_finite, found.values, name));
  }
}

}  // namespace adtrain
