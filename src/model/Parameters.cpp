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

ParameterBuffer::ParameterBuffer(std::vector<NamedTensor> parameters) : leaves_(std::move(parameters)) {
  const at::NoGradGuard no_grad;
  std::vector<at::Tensor> pieces;
  for (const auto& [name, tensor] : leaves_) pieces.push_back(tensor.detach().reshape({-1}));
  rebind(pieces.empty() ? at::empty({0}, at::kFloat) : at::cat(pieces), at::kFloat);
}

std::vector<NamedTensor> ParameterBuffer::named() const {
  std::vector<NamedTensor> views;
  int64_t offset = 0;
  for (const auto& [name, leaf] : leaves_) {
    views.push_back({name, flat_.narrow(0, offset, leaf.numel()).view(leaf.sizes())});
    offset += leaf.numel();
  }
  return views;
}

std::vector<at::Tensor> ParameterBuffer::leaves() const {
  std::vector<at::Tensor> leaves;
  for (const auto& [name, leaf] : leaves_) leaves.push_back(leaf);
  return leaves;
}

void ParameterBuffer::to(at::Device device, at::ScalarType type) {
  if (flat_.device() == device && compute_type() == type) return;
  const at::NoGradGuard no_grad;
  rebind(flat_.to(device), type);
}

void ParameterBuffer::refresh() {
  const at::NoGradGuard no_grad;
  if (compute_type() != at::kFloat) image_.copy_(flat_);
}

void ParameterBuffer::rebind(const at::Tensor& flat, at::ScalarType type) {
  flat_ = flat;
  image_ = flat_.to(type);
  int64_t offset = 0;
  for (auto& [name, leaf] : leaves_) {
    leaf.mutable_grad() = at::Tensor();  // it belongs to the old storage
    leaf.set_data(image_.narrow(0, offset, leaf.numel()).view(leaf.sizes()));
    offset += leaf.numel();
  }
}

void ParameterBuffer::load(std::span<const NamedTensor> tensors) {
  const std::vector<std::string> faults = mismatches(named(), tensors);
  if (!faults.empty()) {
    throw CheckpointError(fmt::format(
        "these weights belong to another model:\n  {}\nUse the configuration that they were trained with.",
        join(faults, "\n  ")));
  }
  std::map<std::string_view, const at::Tensor*> values;
  for (const NamedTensor& tensor : tensors) values.emplace(tensor.name, &tensor.tensor);
  const at::NoGradGuard no_grad;
  for (auto& [name, parameter] : named()) parameter.copy_(*values.at(name));
  refresh();
}

}  // namespace adtrain
