#pragma once

#include <cstdint>

namespace adtrain {

/// One learner of an evaluation: it learns a task once, from an empty context.
struct Trial {
  int64_t task;
  int64_t repeat;
};

}  // namespace adtrain
