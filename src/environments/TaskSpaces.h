#pragma once

#include <cstdint>
#include <optional>
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

  /// Where numbers hold several digits, the space of these: the last axis holds one each.
  std::optional<Space> unpacked_observation() const;
  /// Whether environments that observe this can play for networks of these spaces, digits packed or not.
  bool accepts_observations(const Space& environment) const;
  bool operator==(const TaskSpaces&) const = default;
};

}  // namespace adtrain
