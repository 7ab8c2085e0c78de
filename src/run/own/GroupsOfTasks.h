#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "data/formats/HistorySource.h"
#include "environments/TaskSpaces.h"

namespace adtrain {

/// Whether a space may be said of data that say `in_data` themselves: of data that say nothing any; else the
/// same, or bounds of a Box of which they say only how its numbers are stored.
bool may_be_said(const std::optional<Space>& in_data, const Space& said);

/// Tasks of equal spaces, which one encoder reads and one head plays.
struct GroupOfTasks {
  std::string name;                          ///< of letters, digits, - and _; no other group has it
  std::string domain;                        ///< as the data call it; "" where they do not
  std::optional<Space> observation, action;  ///< nothing where the data do not say
  std::vector<int64_t> packed_digits;
  ColumnType states, actions;  ///< as they are stored
  std::vector<size_t> tasks;   ///< places among the source's

  /// The place among `trained`, the groups that a network was trained on, of the one whose encoder and head
  /// are for these tasks: its spaces may be said of them and it has their group's name or domain. A single
  /// one needs no name, nor does the only one that fits data which say no domain. Nothing where there is
  /// none.
  std::optional<size_t> place_among(const std::vector<TaskSpaces>& trained) const;
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
