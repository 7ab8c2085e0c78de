#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "data/BatchAssembler.h"
#include "data/ColumnWindowIndex.h"
#include "data/TaskScaling.h"
#include "data/formats/HistorySource.h"
#include "environments/TaskSpaces.h"

namespace adtrain {

/// Rows of any space (Batch.h), read in place. States and actions are in their stored types; unsigned numbers
/// of 16 and more bits become signed ones of twice the width, as tensors have them (of 64 bits the same).
/// A step before the first one of a window is known where the history has one.
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
  };
  /// `scales`: one for each of `origin.tasks`. Throws as ColumnWindowIndex does, and DataError where the
  /// spaces are none of the stored values'.
  ColumnWindows(Origin origin, const ColumnWindowShape& shape, const std::vector<TaskScale>& scales,
                size_t threads = 1, const ColumnWindowIndex::Progress& progress = {});

  int64_t samples() const override { return index_.size(); }
  /// Throws DataError that names task, history and step where an observation, an action or a reward is NaN or
  /// infinite, or is a whole number that the space does not have.
  Batch assemble(std::span<const int64_t> samples) const override;
  int64_t bytes() const override { return static_cast<int64_t>(origin_.source.cached_bytes()); }
  std::string description() const override;

  const ColumnWindowIndex& index() const { return index_; }

 private:
  class Rows;
  struct Task {
    size_t group;  ///< of spaces
    float reward_scale;
    std::vector<float> mean, deviation;  ///< empty: observations are not normalised
  };
  /// What the rows of a group's tasks have in common.
  struct Group {
    ColumnType states, actions;
    bool normalised = false;
  };
  void add_task(size_t task, size_t group, const TaskScale& scale);
  /// Rows of one group.
  Batch rows_of(size_t group, std::span<const ColumnWindow> windows) const;

  Origin origin_;
  ColumnWindowIndex index_;
  std::map<size_t, Task> tasks_;    ///< by place in the source
  std::map<size_t, Group> groups_;  ///< those that have tasks
  ColumnKinds kinds_;               ///< what a window is read of
};

}  // namespace adtrain
