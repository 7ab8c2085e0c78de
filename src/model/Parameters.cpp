#include "model/Parameters.h"

#include <map>
#include <string_view>
#include <utility>

#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>
#include <c10/util/StringUtil.h>
#include <fmt/format.h>

#include "base/Error.h"
#include "base/Text.h"

namespace adtrain {
namespace {

std::string shape_text(const at::Tensor& tensor) {
  return c10::str(tensor.sizes());
}

/// All that keeps `given` from being copied into `wanted`, one line each.
std::vector<std::string> mismatches(const std::vector<NamedTensor>& wanted,
                                    std::span<const NamedTensor> given) {
  std::map<std::string_view, const at::Tensor*> unused;
  std::vector<std::string> given_names, lines;
  for (const NamedTensor& tensor : given) {
    unused.emplace(tensor.name, &tensor.tensor);
    given_names.push_back(tensor.name);
  }
  for (const auto& [name, parameter] : wanted) {
    const auto found = unused.find(name);
    if (found == unused.end()) {
      const std::string near = nearest_name(name, given_names);
      lines.push_back(fmt::format("{} is missing{}", name,
                                  near.empty() ? "" : fmt::format(" (nearest found: {})", near)));
      continue;
    }
    const at::Tensor& tensor = *found->second;
    if (tensor.sizes() != parameter.sizes()) {
      lines.push_back(
          fmt::format("{}: found shape {}, expected {}", name, shape_text(tensor), shape_text(parameter)));
    } else if (!tensor.is_floating_point()) {
      lines.push_back(fmt::format("{}: found {} values, expected floating-point ones", name,
                                  c10::toString(tensor.scalar_type())));
    }
    unused.erase(found);
  }
  for (const auto& [name, tensor] : unused) {
    lines.push_back(fmt::format("{} {} is unexpected", name, shape_text(*tensor)));
  }
  return lines;
}

}  // namespace

ParameterBuffer::ParameterBuffer(std::vector<NamedTensor> parameters) : named_(std::move(parameters)) {
  const at::NoGradGuard no_grad;
  std::vector<at::Tensor> pieces;
  for (const auto& [name, tensor] : named_) pieces.push_back(tensor.detach().reshape({-1}));
  rebind(pieces.empty() ? at::empty({0}, at::kFloat) : at::cat(pieces));
}

std::vector<at::Tensor> ParameterBuffer::tensors() const {
  std::vector<at::Tensor> tensors;
  for (const auto& [name, tensor] : named_) tensors.push_back(tensor);
  return tensors;
}

void ParameterBuffer::to(at::Device device) {
  if (flat_.device() == device) return;
  const at::NoGradGuard no_grad;
  rebind(flat_.to(device));
}

void ParameterBuffer::rebind(const at::Tensor& flat) {
  flat_ = flat;
  int64_t offset = 0;
  for (auto& [name, tensor] : named_) {
    tensor.mutable_grad() = at::Tensor();  // it belongs to the old storage
    tensor.set_data(flat_.narrow(0, offset, tensor.numel()).view(tensor.sizes()));
    offset += tensor.numel();
  }
}

void ParameterBuffer::load(std::span<const NamedTensor> tensors) {
  const std::vector<std::string> faults = mismatches(named_, tensors);
  if (!faults.empty()) {
    throw CheckpointError(fmt::format(
        "these weights belong to another model:\n  {}\nUse the configuration that they were trained with.",
        join(faults, "\n  ")));
  }
  std::map<std::string_view, const at::Tensor*> values;
  for (const NamedTensor& tensor : tensors) values.emplace(tensor.name, &tensor.tensor);
  const at::NoGradGuard no_grad;
  for (auto& [name, parameter] : named_) parameter.copy_(*values.at(name));
}

}  // namespace adtrain
