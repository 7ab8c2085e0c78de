#pragma once

#include <cstdint>

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
  uint64_t draws;  ///< random numbers drawn so far
  GpuAgent agent;
  int32_t first;             ///< index of the context's first transition in the trial's ring buffer
  int32_t previous;          ///< transitions in the previous region; compressed context only
  int32_t current;           ///< transitions in the current region; without regions, in the context
  int32_t first_new;         ///< the first token whose keys and values are not computed yet
  int32_t ask_again;         ///< whether to evaluate the query again, as its region was closed
  int32_t broken;            ///< whether logits were not finite
  int32_t steps_unrewarded;  ///< these two as SlidingContext counts them
  int32_t episodes_unrewarded;
  float earned;  ///< in the current episode
  float logits[kMostOutputs];
};

/// What all trials have in common.
struct RolloutProblem {
  int32_t trials;
  int32_t blocks_a_trial;
  int32_t grid_size;
  int32_t horizon;
  int32_t most_tokens;        ///< the longest sequence
  int32_t region;             ///< transitions of a full region; without regions, of a full context
  int32_t forget_unrewarded;  ///< episodes without reward after which a context is emptied; 0: never
  double temperature;
  bool greedy;
  bool terminal_observation;
};

/// How many elements of RolloutMemory's `values` belong to one trial: for each layer, head, 16 tokens and 8
/// numbers of a head, 32 lanes.
constexpr int64_t value_elements(const RolloutNetwork& network, int most_tokens) {
  const int groups = network.width / network.heads / 8, chunks = (most_tokens + 15) / 16;
  return int64_t{network.layer_count} * network.heads * chunks * groups * 32;
}
/// The same for `keys`, whose elements are half as long.
constexpr int64_t key_elements(const RolloutNetwork& network, int most_tokens) {
  return 2 * value_elements(network, most_tokens);
}

/// Arrays in GPU memory, each with one part per trial. Keys and values must be finite from the start (zeros
/// will do): a chunk of 16 tokens reads missing tokens with weight 0.
struct RolloutMemory {
  const GpuTask* tasks;
  RolloutTrial* trials;
  SeenTransition* transitions;  ///< (kMostTokens): a ring
  uint2* keys;                  ///< see SplitAttention.cuh
  uint4* values;
  unsigned* arrivals;  ///< barrier counters of each trial's blocks

  /// The same arrays without the first trials.
  constexpr RolloutMemory from(int trial, const RolloutNetwork& network, int most_tokens) const {
    return {tasks + trial,
            trials + trial,
            transitions + int64_t{trial} * kMostTokens,
            keys + trial * key_elements(network, most_tokens),
            values + trial * value_elements(network, most_tokens),
            arrivals + trial};
  }
};

/// Thread blocks per trial, for `trials` trials (at least 1) on the current GPU; 0 where the GPU cannot run
/// the kernel or lacks the shared memory.
int blocks_a_trial(const RolloutNetwork& network, int trials, int most_tokens);

/// Runs every trial's next episode. Returns at once; throws EnvironmentError where it cannot start.
void launch_episode(const RolloutNetwork& network, const RolloutProblem& problem, const RolloutMemory& memory,
                    cudaStream_t stream);

}  // namespace adtrain::gpu
