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

/// The reasons why `given` cannot be copied into `wanted`, one line each.
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

/// The settings whose networks have such names; null for other names.
const char* block_of(std::string_view name) {
  if (name.starts_with("transformer.blocks.")) return "model: AD with transformer_block: pre_norm";
  if (name.starts_with("transformer_encoder.layers.")) {
    return "transformer_block: post_norm, or compressed context";
  }
  if (name.starts_with("transformer.h.")) return "model: GPT2";
  if (name.starts_with("blocks.")) return "blocks of chosen pieces";
  return nullptr;
}

const char* block_of(std::span<const NamedTensor> tensors) {
  const char* found = nullptr;
  for (const NamedTensor& tensor : tensors) {
    if (const char* block = block_of(tensor.name)) found = block;
  }
  return found;
}

std::vector<int64_t> sizes_of(const std::vector<NamedTensor>& tensors) {
  std::vector<int64_t> sizes;
  for (const auto& [name, tensor] : tensors) sizes.push_back(tensor.numel());
  return sizes;
}

}  // namespace

const char* precision_name(at::ScalarType type) {
  switch (type) {
    case at::kHalf:
      return "fp16";
    case at::kBFloat16:
      return "bf16";
    default:
      return "fp32";
  }
}

ParameterBuffer::ParameterBuffer(std::vector<NamedTensor> parameters)
    : layout_(sizes_of(parameters)), leaves_(std::move(parameters)) {
  const at::NoGradGuard no_grad;
  const at::Device device = leaves_.empty() ? at::kCPU : leaves_.front().tensor.device();
  const at::Tensor flat = at::zeros({layout_.total()}, device);
  const std::vector<NamedTensor> views = views_of(flat);
  for (size_t index = 0; index < views.size(); ++index) {
    at::Tensor(views[index].tensor).copy_(leaves_[index].tensor.detach());
  }
  rebind(flat, at::kFloat);
}

std::vector<NamedTensor> ParameterBuffer::views_of(const at::Tensor& flat) const {
  std::vector<NamedTensor> views;
  for (size_t index = 0; index < leaves_.size(); ++index) {
    const auto& [name, leaf] = leaves_[index];
    views.push_back({name, flat.narrow(0, layout_.offset(index), leaf.numel()).view(leaf.sizes())});
  }
  return views;
}

int64_t ParameterBuffer::count() const {
  int64_t count = 0;
  for (const auto& [name, leaf] : leaves_) count += leaf.numel();
  return count;
}

int64_t ParameterBuffer::bytes() const {
  const size_t copy = compute_type() == at::kFloat ? 0 : low_precision_.nbytes();
  return static_cast<int64_t>(flat_.nbytes() + copy);
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

void ParameterBuffer::spread(const std::vector<at::Device>& devices, at::ScalarType type) {
  const at::NoGradGuard no_grad;
  rebind(flat_, type);
  for (size_t index = 0; index < leaves_.size(); ++index) {
    at::Tensor& leaf = leaves_[index].tensor;
    if (devices[index] == flat_.device()) continue;
    leaf.set_data(leaf.detach().to(devices[index]));
    if (device_.is_cpu()) device_ = devices[index];
  }
}

void ParameterBuffer::refresh() {
  const at::NoGradGuard no_grad;
  if (low_precision().defined()) low_precision_.copy_(flat_);
}

void ParameterBuffer::rebind(const at::Tensor& flat, at::ScalarType type) {
  flat_ = flat;
  device_ = flat.device();
  low_precision_ = flat_.to(type);
  const std::vector<NamedTensor> views = views_of(low_precision_);
  for (size_t index = 0; index < views.size(); ++index) {
    at::Tensor& leaf = leaves_[index].tensor;
    leaf.mutable_grad() = at::Tensor();  // it belongs to the old storage
    leaf.set_data(views[index].tensor);
  }
}

void ParameterBuffer::load(std::span<const NamedTensor> tensors) {
  const char *const wanted = block_of(named()), *const given = block_of(tensors);
  if (wanted != nullptr && given != nullptr && std::string_view(wanted) != given) {
    throw CheckpointError(fmt::format(
        "these weights are of a network with {}; the configuration is of one with {}: use that which "
        "they were trained with",
        given, wanted));
  }
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
