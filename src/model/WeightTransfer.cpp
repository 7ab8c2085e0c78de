#include "model/WeightTransfer.h"

#include <algorithm>
#include <map>
#include <string_view>

#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>
#include <fmt/format.h>
#include <fmt/ranges.h>

#include "base/Text.h"
#include "model/ParameterNames.h"

namespace adtrain {
namespace {

std::string shape_text(const std::vector<int64_t>& shape) {
  return fmt::format("[{}]", fmt::join(shape, ", "));
}

bool is_finite(const at::Tensor& tensor) {
  return at::isfinite(tensor).all().item<bool>();
}

}  // namespace

WeightTransfer WeightTransfer::between(std::span<const NamedTensor> given,
                                       std::span<const NamedTensor> wanted, bool same_spaces) {
  WeightTransfer transfer;
  std::map<std::string_view, const at::Tensor*> unused;
  std::vector<std::string> given_names;
  for (const auto& [name, tensor] : given) {
    unused.emplace(name, &tensor);
    given_names.push_back(name);
  }
  const auto may_differ = [&](std::string_view name) { return !same_spaces && is_of_spaces(name); };
  for (const auto& [name, parameter] : wanted) {
    const std::vector<int64_t> expected = parameter.sizes().vec();
    const auto found = unused.find(name);
    if (found == unused.end()) {
      if (may_differ(name)) {
        transfer.fresh.push_back({name, {}, expected});
      } else {
        const std::string near = nearest_name(name, given_names);
        transfer.faults.push_back(fmt::format("{}: not found, expected shape {}{}", name,
                                              shape_text(expected),
                                              near.empty() ? "" : fmt::format(" (nearest found: {})", near)));
      }
      continue;
    }
    const at::Tensor& tensor = *found->second;
    const std::vector<int64_t> shape = tensor.sizes().vec();
    unused.erase(found);
    if (shape != expected && may_differ(name)) {
      transfer.fresh.push_back({name, shape, expected});
    } else if (shape != expected) {
      transfer.faults.push_back(
          fmt::format("{}: found shape {}, expected {}", name, shape_text(shape), shape_text(expected)));
    } else if (!tensor.is_floating_point()) {
      transfer.faults.push_back(fmt::format("{}: found {} values, expected floating-point ones", name,
                                            c10::toString(tensor.scalar_type())));
    } else if (!is_finite(tensor)) {
      transfer.faults.push_back(fmt::format("{}: found NaN or infinite values, expected finite ones", name));
    } else {
      transfer.taken.push_back(name);
    }
  }
  for (const auto& [name, tensor] : given) {
    if (!unused.contains(name)) continue;
    if (may_differ(name)) {
      transfer.left_out.push_back({name, tensor.sizes().vec(), {}});
    } else {
      transfer.faults.push_back(
          fmt::format("{}: found shape {}, expected no such tensor", name, shape_text(tensor.sizes().vec())));
    }
  }
  return transfer;
}

void WeightTransfer::carry_out(std::span<const NamedTensor> given, ParameterBuffer& parameters) const {
  const at::NoGradGuard no_grad;
  std::map<std::string_view, const at::Tensor*> values;
  for (const auto& [name, tensor] : given) values.emplace(name, &tensor);
  for (auto& [name, parameter] : parameters.named()) {
    if (std::ranges::find(taken, name) != taken.end()) parameter.copy_(*values.at(name));
  }
  parameters.refresh();
}

std::vector<std::string> WeightTransfer::lines() const {
  std::vector<std::string> lines;
  for (const auto& [name, found, expected] : fresh) {
    lines.push_back(fmt::format("new:      {} {}, {}", name, shape_text(*expected),
                                found ? "found " + shape_text(*found) : "which is not there"));
  }
  for (const auto& [name, found, expected] : left_out)
    lines.push_back(fmt::format("left out: {} {}, which has no place here", name, shape_text(*found)));
  return lines;
}

}  // namespace adtrain
