#pragma once

#include "base/Random.h"
#include "collection/gpu/Networks.cuh"

/// Minibatches in shared memory, the next being made while the present one is learnt from.
namespace adtrain::gpu {

constexpr int kLargestBatch = 256;
constexpr int kLargestGrid = 32;
constexpr int kLargestStates = kLargestGrid * kLargestGrid;

struct alignas(16) Minibatch {
  Sample samples[kLargestBatch];
  float2 cells[kLargestBatch];    ///< the distinct states, as (x, y), in ascending order
  int16_t states[kLargestBatch];  ///< the same as numbers
  int count;                      ///< of samples
  int distinct;                   ///< of states
  float advantage_mean, advantage_scale;
};

/// Whether a state occurs in the minibatch that is being made; all 0 in between. Threads may set the same one
/// at once: all to 1.
using StateFlags = uint8_t[kLargestStates];
/// Where each state stands among a minibatch's distinct ones; only for those that occur.
using StateSlots = int16_t[kLargestStates];

/// A random order of a rollout's samples, one for each epoch: a keyed permutation of 0 … size − 1 that is
/// computed on the fly, as data/SampleOrder.h has it.
class EpochOrder {
 public:
  __device__ EpochOrder(int size, uint64_t key) : size_(size), key_(key) {
    half_bits_ = (33 - __clz(size - 1)) / 2;  // half of the bits of size − 1, rounded up
  }

  __device__ int at(int position) const {
    auto value = static_cast<uint32_t>(position);
    do {
      value = permute(value);
    } while (value >= static_cast<uint32_t>(size_));
    return static_cast<int>(value);
  }

 private:
  /// MurmurHash3's finaliser: half as wide as mix_bits, for a chain that a whole warp waits for.
  __device__ static uint32_t mix(uint32_t x) {
    x = (x ^ (x >> 16)) * 0x85ebca6bU;
    x = (x ^ (x >> 13)) * 0xc2b2ae35U;
    return x ^ (x >> 16);
  }
  __device__ uint32_t permute(uint32_t value) const {
    const uint32_t mask = (1U << half_bits_) - 1;
    uint32_t left = value >> half_bits_, right = value & mask;
    for (uint32_t round = 0; round < 4; ++round) {
      const uint32_t next = left ^ (mix(right + static_cast<uint32_t>(key_ >> (8 * round))) & mask);
      left = right;
      right = next;
    }
    return (left << half_bits_) | right;
  }

  int size_;
  uint64_t key_;
  int half_bits_;
};

/// Where the updates of a round are: which samples the minibatch `number` has.
struct MinibatchPlan {
  int samples;      ///< of the rollout
  int batch;        ///< samples of a minibatch; the last of an epoch may have fewer
  int per_epoch;    ///< minibatches
  int minibatches;  ///< of the round
  uint64_t key;

  /// Of the samples of a minibatch, the one at `place`.
  __device__ int sample(int number, int place) const {
    if (samples == 1) return 0;
    return EpochOrder(samples, seed_of(key, number / per_epoch)).at(number % per_epoch * batch + place);
  }
  __device__ int size(int number) const { return min(batch, samples - number % per_epoch * batch); }
};

/// Puts a sample into its place, unless `place` is beyond the minibatch. When all are there, a barrier and
/// `list_states` and `normalise` must follow.
__device__ inline void gather(Minibatch& minibatch, StateFlags& flags, const MinibatchPlan& plan, int number,
                              int place, const Sample* samples) {
  const int count = plan.size(number);
  if (place >= count) return;
  const Sample sample = samples[plan.sample(number, place)];
  minibatch.samples[place] = sample;
  flags[sample.code / 8] = 1;
  if (place == 0) minibatch.count = count;
}

/// Lists the distinct states and clears the flags. For one warp.
__device__ inline void list_states(Minibatch& minibatch, StateFlags& flags, StateSlots& slots,
                                   int grid_size) {
  const int lane = static_cast<int>(threadIdx.x) % 32, states = grid_size * grid_size;
  int found = 0;
  for (int first = 0; first < states; first += 32) {
    const int state = first + lane;
    const bool occurs = state < states && flags[state] != 0;
    const unsigned occurring = __ballot_sync(~0U, occurs);
    if (occurs) {
      const int slot = found + __popc(occurring & ((1U << lane) - 1));
      const int x = state / grid_size;
      minibatch.states[slot] = static_cast<int16_t>(state);
      minibatch.cells[slot] = {static_cast<float>(x), static_cast<float>(state - x * grid_size)};
      slots[state] = static_cast<int16_t>(slot);
      flags[state] = 0;
    }
    found += __popc(occurring);
  }
  if (lane == 0) minibatch.distinct = found;
}

__device__ inline float sum_of_warp(float value) {
  for (int step = 16; step > 0; step /= 2) value += __shfl_xor_sync(~0U, value, step);
  return value;
}

/// Finds what brings the advantages to mean 0 and (unbiased) standard deviation 1; a lone one is left. For
/// one warp.
__device__ inline void normalise(Minibatch& minibatch) {
  const int lane = static_cast<int>(threadIdx.x) % 32, count = minibatch.count;
  float mean = 0, scale = 1;
  if (count > 1) {
    float total = 0, squares = 0;
    for (int i = lane; i < count; i += 32) total += minibatch.samples[i].advantage;
    mean = sum_of_warp(total) / static_cast<float>(count);
    for (int i = lane; i < count; i += 32) {
      const float deviation = minibatch.samples[i].advantage - mean;
      squares += deviation * deviation;
    }
    scale = 1 / (sqrtf(sum_of_warp(squares) / static_cast<float>(count - 1)) + 1e-8F);
  }
  if (lane == 0) {
    minibatch.advantage_mean = mean;
    minibatch.advantage_scale = scale;
  }
}

}  // namespace adtrain::gpu
