#pragma once

#include <filesystem>
#include <map>
#include <optional>
#include <string>

namespace adtrain {

/// What two policies earn in an episode of a task.
struct TaskScore {
  std::optional<double> random;  ///< uniformly random actions
  std::optional<double> expert;
  std::string group;  ///< of tasks, "" for none

  bool has_both() const { return random && expert; }
  /// Whether returns can be placed between both: an expert who earns no more than random actions would turn
  /// the scale round, on which the worse agent scored more.
  bool is_scale() const { return has_both() && *expert > *random; }
};

/// Scores by the names of tasks, from a YAML file as Vintix has them, one for each domain (dunnolab/vintix,
/// arXiv:2501.19400); other keys of a task are passed over:
///
///     Ant-v4: {group: mujoco, random_score: -60.2, expert_score: 6300.5}
///
/// A missing score is one that is not known. Immutable.
class TaskScores {
 public:
  /// Throws DataError, with file and line, where it cannot be read, where a score is no number, where a
  /// task's expert score is not above its random score, and where a task lacks a key and has one of nearly
  /// its name.
  static TaskScores read(const std::filesystem::path& file);

  /// A task that is not there has none.
  TaskScore of(const std::string& task) const;
  /// The task that may be meant by one that is not there; "" where none has nearly its name.
  std::string nearest(const std::string& task) const;
  const std::map<std::string, TaskScore>& all() const { return scores_; }

 private:
  std::map<std::string, TaskScore> scores_;
};

}  // namespace adtrain
