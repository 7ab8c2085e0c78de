#pragma once

#include <cstdint>
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

  bool operator==(const TaskSpaces&) const = default;
};

}  // namespace adtrain
