#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include <cuda_runtime_api.h>

#include "environments/GpuTask.h"
#include "evaluation/gpu/RolloutNetwork.h"

namespace adtrain::gpu {

constexpr int kMostTokens = 256;  ///< of a context with its query

/// One transition of a context.
struct alignas(8) SeenTransition {
  uint8_t x, y, action, reward, next_x, next_y;
};

/// What a trial carries from one launch to the next.
struct RolloutTrial {
  uint64_t seed;   ///< of its actions
  uint64_t draws;  ///< random numbers drawn so far
  GpuAgent agent;
  int32_t first;      ///< where the context's first transition lies in the trial's ring
  int32_t previous;   ///< transitions in the region before; compressed context alone
  int32_t current;    ///< transitions in the region that is open; without regions, in the context
  int32_t first_new;  ///< the token from which on keys and values are yet to be computed
  int32_t ask_again;  ///< whether the query is to be asked again, its region having been closed
  int32_t broken;     ///< whether logits were not finite
  float earned;       ///< in the present episode
  float logits[kMostOutputs];
};

/// What all trials have in common.
struct RolloutProblem {
  int32_t trials;
  int32_t blocks_a_trial;
  int32_t grid_size;
  int32_t horizon;
  int32_t most_tokens;  ///< the longest sequence
  int32_t region;       ///< compressed: transitions of a full region; else those of a full context
  bool greedy;
  bool terminal_observation;
};

/// The GPU's arrays, each with one part for each trial.
struct RolloutMemory {
  const GpuTask* tasks;
  RolloutTrial* trials;
  SeenTransition* transitions;  ///< (kMostTokens): a ring
  uint2* keys;                  ///< see SplitAttention.cuh
  uint4* values;
  unsigned* arrivals;  ///< of the blocks of a trial where they wait for each other

  /// The same arrays without the first trials.
  RolloutMemory from(int trial, const RolloutNetwork& network, int most_tokens) const;
};

/// How many elements of RolloutMemory the keys of one trial take, and its values.
int64_t key_words(const RolloutNetwork& network, int most_tokens);
int64_t value_words(const RolloutNetwork& network, int most_tokens);

/// How many thread blocks share a trial, for so many trials on the current GPU; 0 where its shared memory is
/// too small.
int blocks_a_trial(const RolloutNetwork& network, int trials, int most_tokens);

/// Runs every trial's next episode. Returns at once; throws EnvironmentError where it cannot start.
void launch_episode(const RolloutNetwork& network, const RolloutProblem& problem, const RolloutMemory& memory,
                    cudaStream_t stream);

}  // namespace adtrain::gpu
