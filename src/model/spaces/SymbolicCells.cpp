#include "model/spaces/SymbolicCells.h"

#include <algorithm>
#include <functional>
#include <numeric>

#include <ATen/ATen.h>

namespace adtrain {
namespace {

/// The most values that any of the numbers at place d of the last axis takes, for each of `places`.
std::vector<int64_t> most_along_last_axis(const std::vector<int64_t>& values, int64_t places) {
  std::vector<int64_t> most(static_cast<size_t>(places), 0);
  for (size_t index = 0; index < values.size(); ++index) {
    int64_t& digit = most[index % most.size()];
    digit = std::max(digit, values[index]);
  }
  return most;
}

/// The digits of each number, of which the most significant comes first.
std::vector<at::Tensor> unpacked(const at::Tensor& numbers, const std::vector<int64_t>& values) {
  std::vector<at::Tensor> digits(values.size());
  at::Tensor rest = numbers;
  for (size_t digit = values.size(); digit-- > 0;) {
    digits[digit] = rest.remainder(values[digit]);
    rest = rest.div(values[digit], "floor");
  }
  return digits;
}

}  // namespace

SymbolicCells SymbolicCells::of(const TaskSpaces& spaces) {
  const Space& space = spaces.observation;
  if (!spaces.packed_digits.empty()) return {space.shape, spaces.packed_digits};
  if (space.shape.empty()) return {{}, space.values};
  const bool alike = std::ranges::adjacent_find(space.values, std::not_equal_to<>()) == space.values.end();
  if (space.shape.size() == 2 && alike) return {space.shape, {space.values.front()}};
  return {{space.shape.begin(), space.shape.end() - 1},
          most_along_last_axis(space.values, space.shape.back())};
}

int64_t SymbolicCells::count() const {
  return std::accumulate(shape.begin(), shape.end(), int64_t{1}, std::multiplies<>());
}

bool SymbolicCells::fit_convolutions() const {
  constexpr int64_t kLeast = 4;
  return shape.size() == 2 && shape[0] >= kLeast && shape[1] >= kLeast;
}

CountedFromStart::CountedFromStart(const Space& space)
    : from_zero_(std::ranges::all_of(space.start, [](int64_t start) { return start == 0; })),
      starts_(from_zero_ ? at::Tensor() : at::tensor(space.start, at::kLong).view(space.shape)) {}

at::Tensor CountedFromStart::operator()(const at::Tensor& numbers) const {
  if (from_zero_) return numbers.to(at::kInt);
  if (starts_.device() != numbers.device()) starts_ = starts_.to(numbers.device());
  return (numbers.to(at::kLong) - starts_).to(at::kInt);
}

SymbolicDigits::SymbolicDigits(const TaskSpaces& spaces)
    : cells_(SymbolicCells::of(spaces)),
      packed_(!spaces.packed_digits.empty()),
      counted_(spaces.observation) {}

std::vector<at::Tensor> SymbolicDigits::operator()(const at::Tensor& states) const {
  const at::Tensor numbers = counted_(states);
  if (packed_) return unpacked(numbers, cells_.values);
  constexpr int64_t kRowsAndSteps = 2;
  const bool one_digit = numbers.dim() - kRowsAndSteps == static_cast<int64_t>(cells_.shape.size());
  return one_digit ? std::vector<at::Tensor>{numbers} : numbers.unbind(-1);
}

}  // namespace adtrain
