#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "data/BatchAssembler.h"
#include "data/ColumnCheck.h"
#include "data/ColumnWindowIndex.h"
#include "data/HeldHistories.h"
#include "data/TaskScaling.h"
#include "data/formats/HistorySource.h"
#include "environments/TaskSpaces.h"

namespace adtrain {

/// Rows of any space (Batch.h), read in place. States and actions are in their stored types; unsigned numbers
/// of 16 and more bits become signed ones of twice the width, as tensors have them (of 64 bits the same).
/// A step before the first one of a window is known where the history has one. Where short histories are
/// packed, all rows are packed rows.
///
/// Of several groups of spaces a batch has a part for each group of which there are rows, which are in the
/// order of their samples; of one group it has these rows alone.
class ColumnWindows final : public BatchAssembler {
 public:
  /// What is read.
  struct Origin {
    const HistorySource& source;     ///< borrowed
    std::vector<size_t> tasks;       ///< places among its tasks
    std::vector<TaskSpaces> spaces;  ///< of each group of spaces
    std::string name;                ///< of the file or folder, for messages
    std::vector<size_t> groups =
        {};  ///< of each of `tasks`, by place among `spaces`; empty: all of the first
    const HeldHistories* held = nullptr;  ///< the source, where it holds histories in memory
    bool on_gpu = false;  ///< whether GPUs are to hold them too, which can: why_not_on_gpu() says nothing
  };
  /// `scales`: one for each of `origin.tasks`. Throws as ColumnWindowIndex does, and DataError where the
  /// spaces are none of the stored values'.
  ColumnWindows(Origin origin, const ColumnWindowShape& shape, const std::vector<TaskScale>& scales,
                const ComputeAll& compute = compute_alone(1));

  int64_t samples() const override { return index_.size(); }
  bool packed() const override { return index_.shape().packed; }
  int64_t filled(int64_t sample) const override { return index_.filled(sample); }
  /// Throws DataError that names task, history and step where an observation, an action or a reward is NaN or
  /// infinite, or is a whole number that the space does not have.
  Batch assemble(std::span<const int64_t> samples) const override;
  int64_t bytes() const override { return static_cast<int64_t>(origin_.source.cached_bytes()); }
  std::string description() const override;
  const ColumnWindows* held_columns() const override {
    return origin_.held != nullptr && origin_.on_gpu ? this : nullptr;
  }

  const ColumnWindowIndex& index() const { return index_; }
  /// What a window is read of, where there is such a column.
  static const ColumnKinds& kinds();
  /// Why a GPU cannot cut batches of these tasks itself, as a sentence; "" where it can. `groups`: how many
  /// groups of spaces they have.
  static std::string why_not_on_gpu(const HistorySource& source, const std::vector<size_t>& tasks,
                                    size_t groups);
  /// The histories in memory that batches are cut of; null where they are read in place.
  const HeldHistories* held() const { return origin_.held; }
  /// Of the one group of spaces, where there is one.
  const ColumnType& states() const { return groups_.begin()->second.states; }
  const ColumnType& actions() const { return groups_.begin()->second.actions; }
  bool normalised() const { return groups_.begin()->second.normalised; }

  /// What a task's rows are scaled by.
  struct Task {
    size_t group;  ///< of spaces
    float reward_scale;
    std::vector<float> mean, deviation;  ///< empty: observations are not normalised
  };
  const Task& task(size_t task) const { return tasks_.at(task); }

 private:
  class Rows;
  /// What the rows of a group's tasks have in common.
  struct Group {
    ColumnType states, actions;
    bool normalised = false;
  };
  void add_task(size_t task, size_t group, const TaskScale& scale);
  /// What each row of some of one group holds.
  using RowsParts = std::vector<std::vector<RowPart>>;
  Batch rows_of(size_t group, const RowsParts& rows) const;

  Origin origin_;
  ColumnCheck check_;
  ColumnWindowIndex index_;
  std::map<size_t, Task> tasks_;    ///< by place in the source
  std::map<size_t, Group> groups_;  ///< of spaces, those that have tasks
};

}  // namespace adtrain
