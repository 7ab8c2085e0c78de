#pragma once

#include <cstdint>

#include "collection/PpoSettings.h"

namespace adtrain {

/// A task of any family, as kernels know it.
struct GpuTask {
  uint64_t seed;  ///< of all its random numbers
  int32_t start[2];
  int32_t goal[2];
  int32_t key[2];       ///< −1 where the family has none, and the goal pays always
  int32_t moves[5][2];  ///< of each action, before clipping to the room
};

/// What all tasks of a collection have in common.
struct GpuProblem {
  PpoSettings ppo;
  int32_t grid_size;
  int64_t horizon;
  int64_t kept_streams;  ///< of which the history is kept: the first ones
  bool terminal_next_states;

  constexpr int64_t samples() const { return ppo.streams * ppo.rollout_steps; }  ///< of a rollout
  constexpr int64_t kept_steps() const { return ppo.history_steps() * kept_streams; }
};

}  // namespace adtrain
