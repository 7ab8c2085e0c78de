#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "data/ColumnWindowIndex.h"
#include "data/formats/HistorySource.h"
#include "environments/TaskSpaces.h"
#include "run/RunConfig.h"
#include "run/own/GroupsOfTasks.h"
#include "run/own/NamedHistories.h"

namespace adtrain {

/// A held-out task without histories.
struct UnrecordedTask {
  TaskHistories task;
  std::string group;  ///< of spaces() that it is played with: its name
};

/// The histories of own tasks that a configuration names: which of their tasks are trained on and which are
/// held out, and what the tasks' spaces are. Opening them reads names and shapes alone.
class OwnHistories {
 public:
  /// Of a task. The split is that of all numbers up to the largest: up to here that takes 2 GB and some
  /// seconds.
  static constexpr int64_t kLargestNumber = 99'999'999;

  /// Throws DataError where the histories are missing or damaged and where a task's number is larger than
  /// kLargestNumber, ConfigError where a key names a task or a group that they do not have, where the spaces
  /// that the configuration names are others or no network reads them, where neither says what they are, and
  /// where no task is trained on.
  explicit OwnHistories(const RunConfig& config);

  const HistorySource& source() const { return named_.source(); }
  /// Of each group of tasks with equal spaces that is trained on, in order of their first tasks. Of one group
  /// without a name.
  const std::vector<TaskSpaces>& spaces() const { return spaces_; }
  /// The place of a trained or held-out task's group among spaces().
  size_t group_of(size_t task) const { return group_of_.at(task); }
  /// Places among the source's tasks.
  const std::vector<size_t>& trained() const { return trained_; }
  /// Tasks of groups of which none is trained on are not among them.
  const std::vector<size_t>& held_out() const { return held_out_; }
  /// For messages: the path, or the paths, of the configuration.
  const std::string& name() const { return named_.name(); }
  /// Held-out tasks that a list names and of which there are no histories, in groups that are trained on.
  const std::vector<UnrecordedTask>& unrecorded() const { return unrecorded_; }
  /// What a user should know of them, or of names that tasks share; "" where there is nothing.
  std::string notice() const;
  /// By which a task is known to `tasks`, `train_tasks` and the split.
  int64_t number_of(size_t task) const { return named_.number_of(task); }
  /// How the configuration cuts windows for training.
  ColumnWindowShape shape(const RunConfig& config) const;
  /// See NamedHistories.
  std::string identity() const { return named_.identity(); }

 private:
  void choose_tasks(const RunConfig& config);
  void expect_small_number(int64_t largest, const std::string& task) const;
  void split_as_the_data_say();
  void choose_groups(const RunConfig& config, const GroupsOfTasks& groups);
  void resolve_spaces(const RunConfig& config, const GroupsOfTasks& groups);
  void find_unrecorded(const GroupsOfTasks& groups);
  /// Names of tasks that are trained on, and of others that are held out.
  std::string names_on_both_sides() const;
  TaskSpaces resolved(const RunConfig& config, const GroupOfTasks& group) const;
  void expect_saved_groups(const RunConfig& config) const;
  void expect_network(const RunConfig& config) const;

  NamedHistories named_;
  std::vector<size_t> trained_, held_out_;
  std::vector<TaskSpaces> spaces_;
  std::vector<UnrecordedTask> unrecorded_;
  std::map<size_t, size_t> group_of_;
};

/// Opens the histories of own tasks and puts their spaces into the configuration: so a run that is saved
/// knows them without its histories. Null where the configuration has a family's tasks. Throws as
/// OwnHistories does.
std::shared_ptr<const OwnHistories> open_own_histories(RunConfig& config);

}  // namespace adtrain
