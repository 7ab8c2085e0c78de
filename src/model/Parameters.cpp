#include "model/Parameters.h"

#include <algorithm>
#include <limits>
#include <map>
#include <string_view>
#include <utility>

#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>
#include <c10/util/StringUtil.h>
#include <fmt/format.h>

#include "base/Error.h"
#include "base/FlatLayout.h"
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

/// What stands for a quantised parameter where its shape, type and device are asked for: NaN, in the memory
/// of one number.
at::Tensor without_values(at::IntArrayRef shape, at::ScalarType type, at::Device device) {
  return at::full({1}, std::numeric_limits<double>::quiet_NaN(), at::TensorOptions(type).device(device))
      .expand(shape);
}

/// The tensors stay the same, as others may hold them.
void move_to(at::Device device, const QuantisedMatrix& matrix) {
  for (at::Tensor tensor : matrix.tensors()) {
    if (tensor.defined() && tensor.device() != device) tensor.set_data(tensor.to(device));
  }
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

ParameterBuffer::ParameterBuffer(std::vector<NamedTensor> parameters, QuantisedLinears linears)
    : frozen_(parameters.size(), false), leaves_(std::move(parameters)), linears_(std::move(linears)) {
  const at::NoGradGuard no_grad;
  lay_out();
  const at::Device device = leaves_.empty() ? at::kCPU : leaves_.front().tensor.device();
  const at::Tensor flat = at::zeros({total_}, device);
  const std::vector<NamedTensor> views = views_of(flat);
  for (size_t index = 0; index < views.size(); ++index) {
    at::Tensor(views[index].tensor).copy_(leaves_[index].tensor.detach());
  }
  rebind(flat, at::kFloat);
}

void ParameterBuffer::lay_out() {
  std::vector<size_t> order;  // of the leaves in the flat tensor
  for (const bool frozen : {true, false}) {
    for (size_t index = 0; index < leaves_.size(); ++index) {
      if (frozen_[index] == frozen) order.push_back(index);
    }
  }
  std::vector<int64_t> sizes;
  for (const size_t index : order)
    sizes.push_back(quantised(leaves_[index].name) == nullptr ? leaves_[index].tensor.numel() : 0);
  const FlatLayout layout(sizes);
  offsets_.assign(leaves_.size(), 0);
  for (size_t place = 0; place < order.size(); ++place) offsets_[order[place]] = layout.offset(place);
  total_ = layout.total();
  const auto frozen = static_cast<size_t>(std::ranges::count(frozen_, true));
  trained_begin_ = frozen == order.size() ? total_ : layout.offset(frozen);
}

std::vector<NamedTensor> ParameterBuffer::views_of(const at::Tensor& flat) const {
  std::vector<NamedTensor> views;
  for (size_t index = 0; index < leaves_.size(); ++index) {
    const auto& [name, leaf] = leaves_[index];
    if (quantised(name) != nullptr) continue;
    views.push_back({name, flat.narrow(0, offsets_[index], leaf.numel()).view(leaf.sizes())});
  }
  return views;
}

int64_t ParameterBuffer::count() const {
  int64_t count = 0;
  for (const auto& [name, leaf] : leaves_) count += leaf.numel();
  return count;
}

void ParameterBuffer::freeze(const std::set<std::string>& names) {
  const at::NoGradGuard no_grad;
  const std::vector<NamedTensor> before = named();
  for (size_t index = 0; index < leaves_.size(); ++index) {
    frozen_[index] = names.contains(leaves_[index].name);
    leaves_[index].tensor.set_requires_grad(!frozen_[index]);
  }
  lay_out();
  const at::Tensor flat = at::zeros({total_}, flat_.options());
  const std::vector<NamedTensor> views = views_of(flat);
  for (size_t index = 0; index < views.size(); ++index)
    at::Tensor(views[index].tensor).copy_(before[index].tensor);
  rebind(flat, compute_type());
}

at::Tensor ParameterBuffer::trained_of(const at::Tensor& flat) const {
  if (!flat.defined() || trained_begin_ == 0) return flat;
  return flat.narrow(0, trained_begin_, total_ - trained_begin_);
}

std::vector<at::Tensor> ParameterBuffer::trained_leaves() const {
  std::vector<at::Tensor> trained;
  for (size_t index = 0; index < leaves_.size(); ++index) {
    if (!frozen_[index]) trained.push_back(leaves_[index].tensor);
  }
  return trained;
}

std::vector<NamedTensor> ParameterBuffer::trained_views_of(const at::Tensor& trained) const {
  std::vector<NamedTensor> views;
  for (size_t index = 0; index < leaves_.size(); ++index) {
    if (frozen_[index]) continue;
    const auto& [name, leaf] = leaves_[index];
    views.push_back(
        {name, trained.narrow(0, offsets_[index] - trained_begin_, leaf.numel()).view(leaf.sizes())});
  }
  return views;
}

int64_t ParameterBuffer::trained_count() const {
  int64_t count = 0;
  for (const at::Tensor& leaf : trained_leaves()) count += leaf.numel();
  return count;
}

std::vector<std::string> ParameterBuffer::frozen_names() const {
  std::vector<std::string> names;
  for (size_t index = 0; index < leaves_.size(); ++index) {
    if (frozen_[index]) names.push_back(leaves_[index].name);
  }
  return names;
}

int64_t ParameterBuffer::bytes() const {
  const size_t copy = low_precision_.is_same(flat_) ? 0 : low_precision_.nbytes();
  auto sum = static_cast<int64_t>(flat_.nbytes() + copy);
  for (const auto& [name, linear] : linears_) {
    if (linear->matrix) sum += linear->matrix->bytes();
  }
  return sum;
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

void ParameterBuffer::round(at::Device device, at::ScalarType type) {
  const at::NoGradGuard no_grad;
  rebind(flat_.to(type).to(device), type);
}

void ParameterBuffer::spread(const std::vector<at::Device>& devices, at::ScalarType type) {
  const at::NoGradGuard no_grad;
  rebind(flat_, type);
  for (size_t index = 0; index < leaves_.size(); ++index) {
    at::Tensor& leaf = leaves_[index].tensor;
    if (devices[index] == flat_.device()) continue;
    if (const QuantisedLinear* const linear = quantised(leaves_[index].name)) {
      move_to(devices[index], *linear->matrix);
      leaf.set_data(without_values(leaf.sizes(), type, devices[index]));
    } else {
      leaf.set_data(leaf.detach().to(devices[index]));
    }
    if (device_.is_cpu()) device_ = devices[index];
  }
}

void ParameterBuffer::quantise(const std::set<std::string>& names, const WeightQuantisation& how,
                               at::Device device, at::ScalarType type) {
  const at::NoGradGuard no_grad;
  QuantisedMatrices matrices;
  for (const auto& [name, values] : named()) {
    if (names.contains(name)) matrices.emplace(name, how.quantised(values.cpu()));
  }
  take_quantised(std::move(matrices), how, device, type);
}

void ParameterBuffer::take_quantised(QuantisedMatrices matrices, const WeightQuantisation& how,
                                     at::Device device, at::ScalarType type) {
  const at::NoGradGuard no_grad;
  std::map<std::string, at::Tensor> others;
  for (const auto& [name, values] : named()) {
    if (!matrices.contains(name)) others.emplace(name, values);
  }
  for (auto& [name, matrix] : matrices) {
    QuantisedLinear& linear = *linears_.at(name);
    linear.how = how;
    linear.matrix = std::move(matrix);
    move_to(device, *linear.matrix);
  }
  for (NamedTensor& leaf : leaves_) leaf.tensor.set_requires_grad(false);
  lay_out();
  const at::Tensor flat = at::zeros({total_}, at::TensorOptions(type).device(device));
  for (auto& [name, parameter] : views_of(flat)) parameter.copy_(others.at(name));
  rebind(flat, type);
}

bool ParameterBuffer::is_quantised() const {
  return std::ranges::any_of(linears_, [](const auto& linear) { return linear.second->matrix.has_value(); });
}

std::vector<std::string> ParameterBuffer::linear_weights() const {
  std::vector<std::string> names;
  for (const auto& [name, leaf] : leaves_) {
    if (linears_.contains(name)) names.push_back(name);
  }
  return names;
}

std::vector<std::vector<at::Tensor>> ParameterBuffer::kept() const {
  std::vector<std::vector<at::Tensor>> kept;
  for (const auto& [name, leaf] : leaves_) {
    std::vector<at::Tensor>& of_parameter = kept.emplace_back();
    const QuantisedLinear* const linear = quantised(name);
    if (linear == nullptr) {
      of_parameter.push_back(leaf);
      continue;
    }
    for (const at::Tensor& tensor : linear->matrix->tensors())
      if (tensor.defined()) of_parameter.push_back(tensor);
  }
  return kept;
}

const QuantisedLinear* ParameterBuffer::quantised(const std::string& name) const {
  const auto found = linears_.find(name);
  return found == linears_.end() || !found->second->matrix ? nullptr : found->second.get();
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
  auto view = views.begin();
  for (auto& [name, leaf] : leaves_) {
    leaf.mutable_grad() = at::Tensor();  // it belongs to the old storage
    leaf.set_data(quantised(name) != nullptr ? without_values(leaf.sizes(), type, device_)
                                             : (view++)->tensor);
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
