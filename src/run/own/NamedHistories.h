#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include "data/formats/HistorySource.h"
#include "run/RunConfig.h"

namespace adtrain {

/// The histories of own tasks that a configuration names, opened: that reads names and shapes alone.
class NamedHistories {
 public:
  /// Throws DataError where they are missing or damaged.
  explicit NamedHistories(const RunConfig& config);

  const HistorySource& source() const { return *source_; }
  /// For messages: the path, or the paths, of the configuration.
  const std::string& name() const { return name_; }
  /// By which a task is known to `tasks`, `train_tasks` and the split: of a single file of adtrain's own
  /// format the number of its group, else its place.
  int64_t number_of(size_t task) const;
  /// 16 hexadecimal digits that differ where names, shapes, attributes or spaces differ, where files differ
  /// in size or, of several paths, in order, or where the first or the last step of the first history of one
  /// of 64 tasks does, which are evenly spread. Other steps are not compared: that would take a pass over all
  /// data.
  std::string identity() const;

 private:
  std::string identity_of_files() const;

  std::vector<std::filesystem::path> paths_;
  std::string name_;
  std::unique_ptr<HistorySource> source_;
};

}  // namespace adtrain
