#pragma once

#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include "data/formats/HistoryArrays.h"
#include "data/formats/HistorySource.h"

namespace adtrain {

/// The data set of a task's group that holds such a column, in files that we write: "states".
const char* dataset_name(ColumnKind kind);

/// Histories in one HDF5 file with a group a task, named by a number: XLand-100B's and XLand-Trivial-20B's
/// files (dunno-lab/xland-minigrid-datasets), and ours of versions 1 and 2.
class TaskGroupHistories : public HistorySource {
 public:
  /// Null where the file is none of these formats, or not of `format`; `found` then says what it has. Throws
  /// DataError where it is damaged.
  static std::unique_ptr<TaskGroupHistories> open(const std::filesystem::path& file,
                                                  const HistorySourceOptions& options, std::string& found);

  HistoryFormat format() const override { return format_; }
  std::string description() const override { return description_; }
  const std::vector<SpaceGroup>& groups() const override { return spaces_; }
  const std::vector<TaskHistories>& tasks() const override { return tasks_; }
  /// Whether it looks as if streams came first, where no attribute says what does.
  std::string doubt(size_t task) const override;
  std::vector<std::filesystem::path> files() const override { return {path_}; }
  size_t cached_bytes() const override { return arrays_.cached_bytes(); }
  void drop_cached() const override { arrays_.drop_cached(); }

 protected:
  void read_columns(size_t task, size_t history, int64_t first, int64_t count, const ColumnKinds& kinds,
                    HistoryWindow& window) const override;

 private:
  TaskGroupHistories(std::string path, std::vector<std::string> names, const HistorySourceOptions& options);

  bool recognise(const HistorySourceOptions& options, const nlohmann::json& root, std::string& found);
  void read_version(const nlohmann::json& root);
  void survey();
  TaskHistories task_of(const std::string& name, const Hdf5Metadata::Surveyed& surveyed) const;
  /// XLand knows a task by its attributes, however its group is called: throws DataError where two groups are
  /// of one task.
  void refuse_equal_rulesets() const;
  /// The group of spaces of the task of this name: one of all tasks, or of version 2 as it is attributed.
  size_t group_of(const std::string& name, const TaskHistories& task);
  void describe_spaces(const nlohmann::json& root);
  void describe_version2(SpaceGroup& group, const nlohmann::json& root, const TaskHistories& first) const;
  /// Whether an axis of streams comes before that of time, in a column of this kind.
  bool stream_first(ColumnKind kind) const;

  std::string path_;
  std::vector<std::string> names_;  ///< of the tasks' groups
  mutable HistoryArrays arrays_;    ///< guards itself
  HistoryFormat format_ = HistoryFormat::kAdtrain;
  int64_t version_ = 1;  ///< of our format
  bool stream_first_ = false;
  bool axes_said_ = true;  ///< by an attribute or by the format
  std::string description_;
  std::vector<SpaceGroup> spaces_;
  std::vector<TaskHistories> tasks_;
};

}  // namespace adtrain
