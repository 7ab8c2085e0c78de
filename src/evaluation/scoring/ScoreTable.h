#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "evaluation/scoring/ActionScorer.h"

namespace adtrain {

/// One sample with its score.
struct SampleScore {
  int64_t sample;              ///< its id: the number of its window among all windows
  int64_t task;                ///< as the split numbers it
  int64_t stream;              ///< which history of that task
  int64_t position;            ///< the step of that history in which the action was taken
  std::vector<double> action;  ///< the action that was taken
  ActionScore score;
};

/// Scores of samples, a row each, which are kept as the bytes that scores.npy has of them. Rows of one table
/// have equally many numbers of an action: those that an action's space lacks are NaN, or in the file, among
/// whole numbers, 2⁶³ − 1. A value.
class ScoreTable {
 public:
  /// What all rows have in common.
  struct Layout {
    int64_t elements = 1;  ///< numbers of an action
    bool real = false;     ///< whether these are float64; else int64

    size_t row_bytes() const;
    bool operator==(const Layout&) const = default;
  };

  explicit ScoreTable(const Layout& layout) : layout_(layout) {}
  /// Rows as bytes() has them.
  ScoreTable(const Layout& layout, std::string bytes) : layout_(layout), bytes_(std::move(bytes)) {}
  /// Reads what npy() has written. Throws DataError, which names `origin`, for anything else.
  static ScoreTable from_npy(const Layout& layout, std::string_view npy, const std::string& origin);

  const Layout& layout() const { return layout_; }
  int64_t size() const { return static_cast<int64_t>(bytes_.size() / layout_.row_bytes()); }
  SampleScore operator[](int64_t row) const;
  const std::string& bytes() const { return bytes_; }
  void append(const SampleScore& row);
  /// Of the same layout.
  void append(const ScoreTable& rows) { bytes_ += rows.bytes_; }

  /// A NumPy file of one structured array: sample, task, stream, position (int64), action (int64 or float64;
  /// of several numbers a subarray), probability, loss (float32) and rank (int64).
  std::string npy() const;
  /// The same as lines of text, the numbers of an action in columns of their own. What there is not is empty.
  std::string csv() const;

 private:
  std::string header() const;

  Layout layout_;
  std::string bytes_;
};

}  // namespace adtrain
