#pragma once

#include <cstdint>

namespace adtrain {

/// A history in a row that it shares with others.
struct PackedSegment {
  int64_t history;  ///< among all that windows are cut from
  int32_t column;   ///< where it begins in the row
  int32_t length;   ///< transitions
};

}  // namespace adtrain
