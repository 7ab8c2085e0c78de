#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>

#include "environments/Space.h"

namespace adtrain {

/// Looks for what no network may be shown: rows of numbers that a worker says are of a space.
class SpaceCheck {
 public:
  /// What is wrong with a row: "NaN at [3]", "9 at [1], which is none of 0 to 8".
  using Objection = std::string;

  explicit SpaceCheck(Space space);

  /// Of the row of numbers at `row`: NaN, infinity, or a whole number that the space does not have. Nothing
  /// where all is sound.
  std::optional<Objection> objection(const std::byte* row) const;
  /// Whether a row of a box is within its bounds; always of another space.
  bool is_within_bounds(const std::byte* row) const;

 private:
  Space space_;
  size_t size_;
  bool is_bounded_;  ///< a box with a finite bound at least
};

}  // namespace adtrain
