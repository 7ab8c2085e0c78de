#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "data/formats/HistorySource.h"

namespace adtrain {

/// Tasks of equal spaces, which one encoder reads and one head plays.
struct GroupOfTasks {
  std::string name;                          ///< of letters, digits, - and _; no other group has it
  std::string domain;                        ///< as the data call it; "" where they do not
  std::optional<Space> observation, action;  ///< nothing where the data do not say
  std::vector<int64_t> packed_digits;
  ColumnType states, actions;  ///< as they are stored
  std::vector<size_t> tasks;   ///< places among the source's
};

/// The groups of all tasks of a data set, in order of their first tasks. A group is called as its domain,
/// else after its spaces; where several of one domain differ, after both. Immutable.
class GroupsOfTasks {
 public:
  explicit GroupsOfTasks(const HistorySource& source);

  const std::vector<GroupOfTasks>& all() const { return groups_; }
  /// The group of the task at this place of the source.
  size_t of(size_t task) const { return group_of_.at(task); }
  /// Whether `names`, with commas between, has the group's name or its domain's; nothing chooses all.
  bool is_chosen(size_t group, const std::optional<std::string>& names) const;
  /// One line a group, for people: its spaces and its tasks, by the numbers that `number_of` gives.
  std::vector<std::string> texts(const std::function<int64_t(size_t)>& number_of) const;

 private:
  void name_groups();

  std::vector<GroupOfTasks> groups_;
  std::vector<size_t> group_of_;  ///< of each task
};

}  // namespace adtrain
