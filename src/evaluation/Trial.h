#pragma once

#include <cstdint>

namespace adtrain {

/// One learner of an evaluation: a task that is learnt once, from an empty context.
struct Trial {
  int64_t task;
  int64_t repeat;
};

}  // namespace adtrain
