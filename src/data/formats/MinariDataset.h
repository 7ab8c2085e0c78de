#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "data/RecordedTask.h"
#include "data/formats/HistoryArrays.h"
#include "data/formats/MinariMetadata.h"

namespace adtrain {

/// A Minari data set (https://minari.farama.org) on the disk: a folder with data/metadata.json and
/// data/main_data.hdf5, which has a small group for each episode. Thousands of them are slow to read in
/// place, so a data set is read once, as one history of its episodes in the order of their numbers. For one
/// thread.
class MinariDataset {
 public:
  /// The folder of the two files: `path` itself, data/ in it, or, where `path` is one of the files, the one
  /// that it is in. Nothing where there is no such data set.
  static std::optional<std::filesystem::path> folder_of(const std::filesystem::path& path);
  /// Under which names an episode has its columns; for the constructor's `arrays`.
  static std::vector<ColumnName> column_names();

  /// Reads names and shapes. `arrays` reads for any number of data sets, and must outlive them. Throws
  /// DataError where `path` is no such data set, where episodes are missing or their numbers of steps
  /// contradict each other, and where observations or actions are no values of their space, as JPEG images.
  MinariDataset(const std::filesystem::path& path, HistoryArrays& arrays);

  /// The name that it was given, else that of its folder.
  const std::string& name() const { return metadata_.name; }
  const MinariMetadata& metadata() const { return metadata_; }
  /// The types of the rows, as they are stored.
  const ColumnType& observations() const { return observations_; }
  const ColumnType& actions() const { return actions_; }
  /// Differs where episodes, steps or sizes do.
  std::string identity() const;

  /// What `read` found besides.
  struct Remarks {
    int64_t unmarked_ends = 0;  ///< episodes whose last step neither terminates nor truncates
    int64_t early_ends = 0;     ///< steps that do, and are not the last of their episode
    std::string first_early_end;
  };
  /// Reads the first `task.steps` steps as history `stream` of a task of RecordedTask::sized with these
  /// types. An unmarked end is made a truncation. The observation after an episode's last step is left out.
  /// `listen` is called after each episode with its steps. Throws DataError that names file and episode where
  /// the data are damaged or shapes contradict each other, and where values are NaN, infinite or, as whole
  /// numbers, not of their space.
  Remarks read(RecordedTask& task, int64_t stream, const std::function<void(int64_t steps)>& listen) const;

 private:
  class EpisodeReading;

  void find_episodes();
  void find_types();
  std::string place(size_t episode) const;

  std::filesystem::path folder_;
  std::string file_;
  HistoryArrays* arrays_;
  MinariMetadata metadata_;
  std::vector<int64_t> steps_;  ///< of each episode
  ColumnType observations_, actions_;
};

}  // namespace adtrain
