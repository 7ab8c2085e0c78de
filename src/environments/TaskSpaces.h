#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "environments/Space.h"

namespace adtrain {

/// What is observed and what is done in a task that is none of the grid families', as its histories and its
/// environments have it and networks take it. A value.
struct TaskSpaces {
  Space observation;
  Space action;
  /// Where each number of an observation holds several digits: how many values each may take, the most
  /// significant first, as 13 tiles and 12 colours in XLand-100B. Empty: it is one number.
  std::vector<int64_t> packed_digits;
  /// The name of the group of tasks that have these spaces, where there are several; else "".
  std::string group = "";

  /// Where numbers hold several digits, the space of these: the last axis holds one each.
  std::optional<Space> unpacked_observation() const;
  /// Whether environments that observe this can play for networks of these spaces, digits packed or not.
  bool accepts_observations(const Space& environment) const;
  /// For people: "observations Box((4,), float32), actions Discrete(2)".
  std::string text() const;
  bool operator==(const TaskSpaces&) const = default;
};

/// Groups of spaces as JSON on one line, as a run's configuration keeps them.
std::string json_of_groups(const std::vector<TaskSpaces>& groups);
/// Reads what json_of_groups has written: two groups at least, whose names differ. Throws DataError, which
/// names `origin`, for anything else.
std::vector<TaskSpaces> groups_from_json(const std::string& text, const std::string& origin);

}  // namespace adtrain
