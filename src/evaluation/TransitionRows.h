#pragma once

#include <cstdint>
#include <span>

#include "data/Batch.h"

namespace adtrain {

/// One environment step of n rows at once. Borrowed; spans of states hold (n, 2), the others (n). `ended`: 1
/// where an episode ended; without it none did.
struct StepOfRows {
  std::span<const int32_t> states;
  std::span<const int32_t> actions;
  std::span<const float> rewards;
  std::span<const int32_t> next_states;
  std::span<const uint8_t> ended = {};
};

/// n rows of `capacity` transitions on the CPU, in the layout of Batch; zero where nothing was written.
/// Allocated once: contexts write to it and shift it, and models read it in place.
class TransitionRows {
 public:
  TransitionRows(int64_t rows, int64_t capacity);

  int64_t rows() const { return rows_; }
  int64_t capacity() const { return capacity_; }

  /// Writes `step`'s entry of `row` into a column.
  void put(int64_t row, int64_t column, const StepOfRows& step);
  /// Writes a state alone, as the query after a context.
  void put_state(int64_t row, int64_t column, std::span<const int32_t> states);
  /// Drops the first `count` transitions of a row: the rest moves to the front, followed by zeros.
  void drop_front(int64_t row, int64_t count);

  /// Empties a row.
  void clear(int64_t row) { drop_front(row, capacity_); }

  /// `columns` columns from `begin` on, contiguous: the tensors themselves for all columns, else copies.
  Batch columns(int64_t begin, int64_t columns) const;
  Batch first(int64_t columns) const { return this->columns(0, columns); }
  /// The first `columns` columns of the rows with these numbers, int64 (n): copies.
  Batch first(int64_t columns, const at::Tensor& rows) const;
  /// `columns` columns that end before `ends` (n) of each row, zeros in the place of what would lie before
  /// its first: copies.
  Batch last(int64_t columns, std::span<const int64_t> ends) const;

 private:
  int64_t rows_;
  int64_t capacity_;
  Batch batch_;
};

}  // namespace adtrain
