#include "checkpoint/TensorStatistics.h"

#include <cmath>

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
  const at::NoGradGuard no_grad;
  for (const auto& [name, tensor] : tensors) {
    // A finite sum has finite terms alone, and takes one pass over them; that of finite ones may be infinite.
    if (std::isfinite(tensor.sum().item<double>())) continue;
    const TensorStatistics found = TensorStatistics::of(tensor);
    if (found.not_finite == 0) continue;
    throw CheckpointError(fmt::format(
        "{}{} of {} values of '{}' are NaN or infinite; expected finite ones: use another checkpoint", whose,
        found.not_finite, found.values, name));
  }
}

}  // namespace adtrain
