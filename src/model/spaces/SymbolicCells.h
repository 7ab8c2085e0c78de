#pragma once

#include <cstdint>
#include <vector>

#include <ATen/core/Tensor.h>

#include "environments/TaskSpaces.h"

namespace adtrain {

/// The whole numbers of an observation as cells of digits, such as a view of 5 × 5 cells of a tile and a
/// colour. A value.
///
/// | observation | cells | digits of a cell |
/// |---|---|---|
/// | packed | the array's shape | those that are packed in a number |
/// | Discrete | one | the number |
/// | MultiDiscrete of shape (n) | one | all n numbers |
/// | of shape (h, w), the same values everywhere | (h, w) | the number |
/// | of any other shape | the shape without its last extent | the numbers along that one |
struct SymbolicCells {
  std::vector<int64_t> shape;   ///< extents of the array of cells; empty for one cell
  std::vector<int64_t> values;  ///< of each digit: the most that it takes in any cell

  static SymbolicCells of(const TaskSpaces& spaces);

  int64_t count() const;
  int64_t digits() const { return static_cast<int64_t>(values.size()); }
  /// Whether the cells are a grid, wide and high enough for three convolutions of 2 × 2.
  bool fit_convolutions() const;
};

/// Numbers of a Discrete or MultiDiscrete, counted from their starts. Not thread-safe.
class CountedFromStart {
 public:
  explicit CountedFromStart(const Space& space);

  /// (…, *shape) of any whole type -> int32 of that shape.
  at::Tensor operator()(const at::Tensor& numbers) const;
  /// The same in any whole type: numbers that count from 0 are not copied.
  at::Tensor of_any_type(const at::Tensor& numbers) const { return from_zero_ ? numbers : (*this)(numbers); }

 private:
  bool from_zero_;
  mutable at::Tensor starts_;  ///< int64 (*shape), on the device that asked last
};

/// Takes observations apart into digits, each counted from 0; packed numbers on the device where they are.
/// Not thread-safe.
class SymbolicDigits {
 public:
  explicit SymbolicDigits(const TaskSpaces& spaces);

  const SymbolicCells& cells() const { return cells_; }
  /// The numbers of states, each counted from 0, of any whole type.
  at::Tensor numbers(const at::Tensor& states) const { return counted_.of_any_type(states); }
  /// states (B, T, *shape of the observation) of any whole type -> int32 (B, T, *cells.shape) of each digit.
  std::vector<at::Tensor> operator()(const at::Tensor& states) const;

 private:
  SymbolicCells cells_;
  bool packed_;
  CountedFromStart counted_;
};

}  // namespace adtrain
