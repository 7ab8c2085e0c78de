#pragma once

#include <cstdint>

#include "collection/PpoSettings.h"

namespace adtrain {

/// What all tasks of a collection have in common.
struct GpuProblem {
  PpoSettings ppo;
  int32_t grid_size;
  int64_t horizon;
  int64_t kept_streams;  ///< streams whose history is kept: the first ones
  bool terminal_next_states;

  constexpr int64_t samples() const { return ppo.streams * ppo.rollout_steps; }  ///< of a rollout
  constexpr int64_t kept_steps() const { return ppo.history_steps() * kept_streams; }
};

}  // namespace adtrain
