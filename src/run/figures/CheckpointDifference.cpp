#include "run/figures/CheckpointDifference.h"

#include <algorithm>
#include <cmath>
#include <cstring>

#include <ATen/ATen.h>
#include <fmt/format.h>
#include <fmt/ranges.h>

namespace adtrain {
namespace {

std::string value_text(const at::Tensor& element) {
  if (element.scalar_type() == at::kDouble) return fmt::format("{}", element.item<double>());
  if (element.is_floating_point()) return fmt::format("{}", element.item<float>());
  return fmt::format("{}", element.item<int64_t>());
}

/// Two tensors of one name, shape and type, both contiguous on the CPU, as CheckpointStore loads them.
struct Pair {
  std::string name;
  at::Tensor first, second;

  bool is_equal() const {
    return first.nbytes() == 0 ||
           std::memcmp(first.const_data_ptr(), second.const_data_ptr(), first.nbytes()) == 0;
  }
  ElementDifference at_place(int64_t place) const {
    ElementDifference element{.tensor = name, .index = {}, .first = {}, .second = {}};
    const at::Tensor one = first.flatten()[place], other = second.flatten()[place];
    for (int64_t d = first.dim() - 1, rest = place; d >= 0; rest /= first.size(d), --d)
      element.index.insert(element.index.begin(), rest % first.size(d));
    element.first = value_text(one);
    element.second = value_text(other);
    element.by = std::abs(one.to(at::kDouble).item<double>() - other.to(at::kDouble).item<double>());
    return element;
  }
  /// The first place whose bits differ, where they do.
  int64_t first_place() const {
    const auto size = static_cast<size_t>(first.element_size());
    const auto* const one = static_cast<const char*>(first.const_data_ptr());
    const auto* const other = static_cast<const char*>(second.const_data_ptr());
    int64_t place = 0;
    while (std::memcmp(one + size * static_cast<size_t>(place), other + size * static_cast<size_t>(place),
                       size) == 0) {
      ++place;
    }
    return place;
  }
  int64_t largest_place() const {
    const at::Tensor by = (first.to(at::kDouble) - second.to(at::kDouble)).abs().flatten();
    return at::nan_to_num(by, /*nan=*/0).argmax().item<int64_t>();
  }
};

std::string shape_text(const at::Tensor& tensor) {
  return fmt::format("{} [{}]", c10::toString(tensor.scalar_type()), fmt::join(tensor.sizes(), ", "));
}

}  // namespace

std::string ElementDifference::text() const {
  return fmt::format("{}[{}]: {} and {}, by {:.3g}", tensor, fmt::join(index, ", "), first, second, by);
}

void TensorDifference::compare(const std::string& file, const std::vector<NamedTensor>& first_tensors,
                               const std::vector<NamedTensor>& second_tensors) {
  for (const NamedTensor& one : first_tensors) {
    const std::string name = file + "/" + one.name;
    const auto other = std::ranges::find(second_tensors, one.name, &NamedTensor::name);
    if (other == second_tensors.end()) {
      unlike.push_back(fmt::format("only A has {}", name));
      continue;
    }
    if (one.tensor.sizes() != other->tensor.sizes() ||
        one.tensor.scalar_type() != other->tensor.scalar_type()) {
      unlike.push_back(
          fmt::format("{} is {} in A and {} in B", name, shape_text(one.tensor), shape_text(other->tensor)));
      continue;
    }
    ++tensors;
    const Pair pair{name, one.tensor, other->tensor};
    if (pair.is_equal()) continue;
    ++different;
    if (!first) first = pair.at_place(pair.first_place());
    const ElementDifference most = pair.at_place(pair.largest_place());
    if (most.by > (largest ? largest->by : 0)) largest = most;
  }
  for (const NamedTensor& other : second_tensors) {
    if (std::ranges::find(first_tensors, other.name, &NamedTensor::name) == first_tensors.end())
      unlike.push_back(fmt::format("only B has {}/{}", file, other.name));
  }
}

CheckpointDifference CheckpointDifference::between(const Snapshot& first, const Snapshot& second) {
  CheckpointDifference difference;
  difference.compare("model", first.model, second.model);
  difference.compare("optimizer", first.optimizer, second.optimizer);
  return difference;
}

}  // namespace adtrain
