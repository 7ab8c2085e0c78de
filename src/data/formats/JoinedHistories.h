#pragma once

#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include "data/formats/HistorySource.h"

namespace adtrain {

/// The tasks of several sources as those of one, in their order. Tasks that are named after their number
/// alone ("task 3") get the name of their path before it, as others may have the same number.
class JoinedHistories : public HistorySource {
 public:
  struct Part {
    std::filesystem::path path;
    std::unique_ptr<HistorySource> source;
  };
  /// Two parts at least. Throws DataError, which names both paths, where two of them have a task of one name:
  /// in groups of one name, or of which one has no name.
  explicit JoinedHistories(std::vector<Part> parts);

  HistoryFormat format() const override { return parts_.front().source->format(); }
  std::string format_names() const override;
  std::string description() const override;
  const std::vector<SpaceGroup>& groups() const override { return groups_; }
  const std::vector<TaskHistories>& tasks() const override { return tasks_; }
  std::vector<TaskHistories> unrecorded() const override;
  std::string path_of(size_t task) const override { return part_of(task).path.string(); }
  std::string doubt(size_t task) const override;
  std::vector<std::filesystem::path> files() const override;
  /// Parts that share their files count once.
  size_t cached_bytes() const override { return parts_.front().source->cached_bytes(); }
  void drop_cached() const override { parts_.front().source->drop_cached(); }

 protected:
  void read_columns(size_t task, size_t history, int64_t first, int64_t count, const ColumnKinds& kinds,
                    HistoryWindow& window) const override;

 private:
  const Part& part_of(size_t task) const { return parts_[places_.at(task).part]; }
  void name_tasks();
  void refuse_equal_names() const;

  struct Place {
    size_t part, task;
  };
  std::vector<Part> parts_;
  std::vector<SpaceGroup> groups_;
  std::vector<TaskHistories> tasks_;
  std::vector<Place> places_;  ///< of each task
};

}  // namespace adtrain
