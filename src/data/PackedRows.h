#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "data/PackedSegment.h"

namespace adtrain {

/// A history that is shorter than a row.
struct ShortHistory {
  int64_t history;  ///< among all that windows are cut from
  int64_t length;   ///< transitions
  size_t group;     ///< of spaces: rows are of one group each
};

/// Short histories, each once, end to end in rows; what is left of a row is padding.
///
/// Best fit, the longest first (as TRL packs by "bfd"): each history goes into the row with the least space
/// that it fits in. Histories of equal length come in an order that `seed` shuffles. So rows are a function
/// of lengths and seed. Immutable; thread-safe.
class PackedRows {
 public:
  PackedRows() = default;
  /// Rows of `row_length` transitions, which all are longer than the histories.
  PackedRows(std::vector<ShortHistory> histories, int64_t row_length, uint64_t seed);

  int64_t size() const { return static_cast<int64_t>(first_segment_.size()) - 1; }
  /// In order of their columns.
  std::span<const PackedSegment> row(int64_t row) const;
  /// How many of the row's first transitions are no padding.
  int64_t filled(int64_t row) const { return row_end(this->row(row).back()); }
  /// That are no padding, of all rows.
  int64_t transitions() const { return transitions_; }

  /// The segments of all rows, one row behind the other, and where each row's begin, and behind the last one.
  const std::vector<PackedSegment>& segments() const { return segments_; }
  const std::vector<int64_t>& first_segment() const { return first_segment_; }

 private:
  static int64_t row_end(const PackedSegment& last) { return last.column + last.length; }

  std::vector<PackedSegment> segments_;
  std::vector<int64_t> first_segment_ = {0};
  int64_t transitions_ = 0;
};

}  // namespace adtrain
