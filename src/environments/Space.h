#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/ElementType.h"

namespace adtrain {

/// What an observation or an action is, by Gymnasium's names: one whole number (Discrete), an array of them
/// (MultiDiscrete), or an array of real numbers (Box). A value.
struct Space {
  enum class Kind { kDiscrete, kMultiDiscrete, kBox };

  Kind kind = Kind::kDiscrete;
  ElementType type = ElementType::kInt64;
  std::vector<int64_t> shape;   ///< empty where it is one number
  std::vector<int64_t> values;  ///< of each element, in C order: how many it may take; empty for a box
  std::vector<int64_t> start;   ///< of each element: the first of them; empty for a box
  std::vector<double> low;      ///< of each element of a box, −infinity where unbounded; else empty
  std::vector<double> high;

  static Space discrete(int64_t values);
  /// `values` of each element in C order, or one number for all.
  static Space multi_discrete(std::vector<int64_t> shape, std::vector<int64_t> values);
  /// Bounds of each element in C order, or one number for all.
  static Space box(std::vector<int64_t> shape, std::vector<double> low, std::vector<double> high,
                   ElementType type = ElementType::kFloat32);

  /// Reads Minari's JSON, in which data sets and environments describe their spaces:
  /// {"type": "Box", "dtype": "float32", "shape": [3], "low": […], "high": […]},
  /// {"type": "Discrete", "dtype": "int64", "start": 0, "n": 6} or
  /// {"type": "MultiDiscrete", "dtype": "int64", "nvec": […], "start": […]}, where bounds may be Infinity and
  /// -Infinity, as Python writes them. `origin` is named in errors. Throws DataError for anything else.
  static Space from_json(const std::string& text, const std::string& origin);
  /// The same JSON, on one line. Infinite bounds are written as Python's json module does.
  std::string to_json() const;

  /// Elements of one observation or action: the product of the shape's extents.
  int64_t size() const;
  /// For people: "Discrete(6)", "MultiDiscrete((5, 5, 2), values 13, 12, …)", "Box((39,), float32)".
  std::string text() const;
  /// Whether its numbers can stand where those of `trained` are expected: they are the same ones, of whole or
  /// of real numbers of any width. Where a bound of `trained` is infinite, as data sets have them that tell
  /// none, any will do.
  bool fits(const Space& trained) const;
  bool operator==(const Space&) const = default;

 private:
  /// What makes its members contradict each other; "" for nothing.
  std::string contradiction() const;
};

}  // namespace adtrain
