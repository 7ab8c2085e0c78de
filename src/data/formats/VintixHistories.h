#pragma once

#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include "data/formats/HistoryArrays.h"
#include "data/formats/HistorySource.h"
#include "data/formats/ListedTasks.h"

namespace adtrain {

/// Histories as Vintix and Vintix II have them (dunnolab/vintix, arXiv 2501.19400): folders DOMAIN/TASK with
/// a TASK.json and any number of HDF5 files, each one history, in groups named FIRST-LAST of consecutive
/// steps. The path is the folder of domains, of tasks, or of one task.
class VintixHistories : public HistorySource {
 public:
  /// Null where no folder there has HDF5 files; `found` then says what it has. Throws DataError where a file
  /// is damaged or contradicts its task's JSON.
  static std::unique_ptr<VintixHistories> open(const std::filesystem::path& folder,
                                               const HistorySourceOptions& options, std::string& found);
  /// The tasks of one of Vintix's lists, in its order, with what it says of them: their names, groups,
  /// attributes, and which are held out. Null where `options` ask for another format. Throws DataError,
  /// besides, as read_listed_tasks does, and where a task has no histories that is not held out.
  static std::unique_ptr<VintixHistories> open_listed(const std::filesystem::path& list,
                                                      const HistorySourceOptions& options,
                                                      std::string& found);

  HistoryFormat format() const override { return HistoryFormat::kVintix; }
  std::string description() const override { return "a folder a task, a file a history"; }
  const std::vector<SpaceGroup>& groups() const override { return groups_; }
  const std::vector<TaskHistories>& tasks() const override { return tasks_; }
  std::vector<TaskHistories> unrecorded() const override { return unrecorded_; }
  std::vector<std::filesystem::path> files() const override;
  size_t cached_bytes() const override { return arrays_.cached_bytes(); }
  void drop_cached() const override { arrays_.drop_cached(); }

 protected:
  void read_columns(size_t task, size_t history, int64_t first, int64_t count, const ColumnKinds& kinds,
                    HistoryWindow& window) const override;

 private:
  /// Consecutive steps, which are one group of a file.
  struct Piece {
    int64_t first, last;
    std::string name() const;
  };
  struct Trajectory {
    std::string path;
    std::vector<Piece> pieces;  ///< in order, without gaps from step 0 on
  };

  explicit VintixHistories(const HistorySourceOptions& options);

  /// Returns what the folder says of it.
  TaskHistories& add_task(const std::filesystem::path& folder, const std::string& domain,
                          const std::vector<std::filesystem::path>& files);
  void add_listed(const ListedTask& listed);
  Trajectory trajectory_of(const std::filesystem::path& file);
  size_t group_of(const std::filesystem::path& folder, const std::string& domain, const Trajectory& first,
                  TaskHistories& task);

  mutable HistoryArrays arrays_;  ///< guards itself
  std::vector<SpaceGroup> groups_;
  std::vector<TaskHistories> tasks_, unrecorded_;
  std::vector<std::vector<Trajectory>> trajectories_;  ///< of each task
};

}  // namespace adtrain
