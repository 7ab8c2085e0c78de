#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "base/ComputeAll.h"
#include "data/DataOptions.h"
#include "data/KeptSteps.h"
#include "data/PackedRows.h"
#include "data/WindowFinder.h"
#include "data/formats/HistorySource.h"

namespace adtrain {

/// How histories of any space are cut into samples.
struct ColumnWindowShape {
  int64_t length = 0;              ///< steps of a window
  int64_t stride = 1;              ///< a window begins at every stride-th kept step
  int64_t margin = 0;              ///< steps at both ends of a history in which no window lies
  double last_fraction = 1;        ///< only windows that begin in this last part of a history
  int64_t steps = kAllThereAre;    ///< only so many first steps of each history
  int64_t streams = kAllThereAre;  ///< only so many first histories of each task
  int64_t episode_stride = 1;  ///< only every k-th episode, from the first on; × that of the task's own data
  TaskWeights weights = TaskWeights::kWindows;
  int64_t most_samples = 0;  ///< samples are at most so many windows, evenly spread; 0: all
  /// Histories that are too short for a window are samples too: whole, several in a row (PackedRows).
  bool packed = false;
  uint64_t packing_seed = 0;
};

/// What a task's own data say of its episodes, as Vintix's lists have it: only every k-th is used, by its
/// attribute episode_sparsity, of those in its attribute episode_range, "0,0.5". Throws DataError where these
/// are none.
EpisodeChoice episodes_of(const TaskHistories& task);

/// One sample: the position of its window.
struct ColumnWindow {
  size_t task;     ///< among tasks() of the source
  size_t history;  ///< of that task
  int64_t start;   ///< among the history's kept steps
};

/// What a row of a batch holds from one of its columns on.
struct RowPart {
  ColumnWindow window;
  int64_t column, length;
};

/// Numbers the windows of histories of any length, 0 … size() − 1, without a table of them: what it holds is
/// a number a history, and the first steps of kept episodes where episodes are left out. Where short
/// histories are packed, their rows follow the windows, and there is a table of them.
///
/// In a history of K kept steps, window k begins at step margin + k·stride and ends at step K − margin at the
/// latest. With a last fraction f, only those windows count whose step k·stride is step (T − 1)·(1 − f) of
/// the history's T steps, or a later one. So margin 1 gives the windows of XLand's loader, and of Vintix's:
/// length + 1 steps, of which the first one only says what came before. A packed history has its K − 2 margin
/// steps from step margin on.
/// Immutable; thread-safe.
class ColumnWindowIndex {
 public:
  /// `tasks`: places among those of the source, which is borrowed. Reads nothing, unless episodes are left
  /// out: then the columns that say where they end, and rewards, by `compute`. `groups`: of spaces, of each
  /// of `tasks`, which packed rows do not mix; empty: one. Throws DataError where a task has not one sample,
  /// and names the settings that decide.
  ColumnWindowIndex(const HistorySource& source, const std::vector<size_t>& tasks,
                    const ColumnWindowShape& shape, const ComputeAll& compute = compute_alone(1),
                    const std::vector<size_t>& groups = {});

  int64_t size() const { return size_; }
  /// Of a sample that is one, as all are unless short histories are packed.
  ColumnWindow window(int64_t sample) const;
  /// What any sample's row holds, in order of the columns; the rest is padding.
  std::vector<RowPart> row(int64_t sample) const;
  /// How many of its first transitions are no padding.
  int64_t filled(int64_t sample) const;
  const ColumnWindowShape& shape() const { return shape_; }
  /// Histories that windows are cut from.
  int64_t histories() const { return static_cast<int64_t>(first_window_.size()) - 1; }
  /// Windows that there are, each once.
  int64_t windows() const { return first_window_.back(); }
  /// Of short histories, where they are packed.
  const PackedRows& packed() const { return packed_; }
  /// The share of all rows' transitions that are no padding.
  double fill_rate() const;
  /// For people: how many rows there are, and how full they are.
  std::string packing_text() const;
  /// Of a history that windows are cut from.
  KeptSteps kept(size_t task, size_t history) const;

  /// A history that windows are cut from.
  struct History {
    size_t task, history;
    int64_t first_start;  ///< where its first window begins, among the kept steps; the others follow
    KeptSteps kept;
  };
  /// Number `index` of all, as a WindowFinder's places have it.
  History history(size_t index) const;
  /// Its arithmetic. Borrows the index.
  WindowFinder finder() const;

 private:
  int64_t steps_of(size_t task, size_t history) const;
  /// The number on the grid of the first window that counts.
  int64_t first_on_grid(const KeptSteps& kept, int64_t steps) const;
  int64_t windows_in(const KeptSteps& kept, int64_t steps) const;
  /// Throws where it has no sample at all.
  int64_t windows_of_task(size_t chosen) const;
  /// Steps that a history's samples are of.
  int64_t usable(const KeptSteps& kept) const { return kept.size() - 2 * shape_.margin; }
  bool is_short(const KeptSteps& kept) const {
    return shape_.packed && usable(kept) > 0 && usable(kept) < shape_.length;
  }
  KeptSteps kept_of(size_t index, size_t task, size_t history) const;

  const HistorySource& source_;
  ColumnWindowShape shape_;
  std::vector<size_t> chosen_;          ///< tasks, in the order of their places
  std::vector<int64_t> first_history_;  ///< of each of them, among all that are chosen, and behind the last
  std::vector<KeptSteps> thinned_;      ///< of all chosen histories, where episodes are left out
  std::vector<int64_t> first_window_;   ///< of each chosen history, and behind the last one
  PackedRows packed_;
  int64_t most_of_a_task_ = 0;
  int64_t size_ = 0;
};

}  // namespace adtrain
