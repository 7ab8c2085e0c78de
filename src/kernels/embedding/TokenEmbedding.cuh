#pragma once

#include <algorithm>

#include "base/Cuda.h"
#include "kernels/embedding/TokenEmbedding.h"
#include "kernels/primitives/Instructions.cuh"
#include "kernels/primitives/RowProducts.cuh"

/// Forward, and backward for transitions, a warp works on a warp tile of 16 neighbouring tokens, sequence
/// after sequence, so that the tokens' position embeddings, or their sums, stay in registers. What it needs
/// of the next sequences is copied meanwhile. A transition's features are a row of 16. Both directions are
/// products on the tensor cores:
///
///     forward: x = position + features · weights       backward: dweights = featuresᵀ · dx, dposition = Σ dx
///
/// The bias and the type embedding are the weights of two more features, which are always 1. Queries have no
/// features.
namespace adtrain::kernels::token_embedding {

constexpr int kWarps = 8, kThreads = kWarps * kWarp;
constexpr int kThreadBlocks = 264;  ///< as many as run at once on an H100
constexpr int kStages = 4;          ///< sequences that a warp copies to shared memory at once
constexpr int kFeatureRow = 16;
constexpr int kOnes = 2;  ///< features that are always 1
static_assert(TokenShape::kMostActions + 5 + kOnes <= kFeatureRow);

/// How many neighbouring columns a thread block works on.
inline int columns_at_once(const TokenShape& shape) {
  return shape.width % 64 == 0 ? 64 : 32;
}
inline int tiles_of(int rows) {
  return static_cast<int>(gpu::divided_up(rows, kWarpTile));
}

/// The warp tiles of a sequence's tokens, which are either transitions or queries, and the slices of all
/// sequences. A thread block works on one of each, or, for the gradients of queries, on a part of all slices
/// of all warp tiles. There are as many slices as give all multiprocessors
/// work, but not so many that a warp has few sequences.
struct Division {
  int context_tiles, query_tiles, slices;

  static Division of(const TokenShape& shape) {
    const int context_tiles = tiles_of(shape.context), query_tiles = tiles_of(shape.queries);
    const int blocks = (context_tiles + query_tiles) * (shape.width / columns_at_once(shape));
    const auto most = static_cast<int>(gpu::divided_up(shape.sequences, kWarps * kStages));
    return {context_tiles, query_tiles, std::clamp(kThreadBlocks / blocks, 1, most)};
  }
};

/// One feature of transitions in shared memory: first those that embed_context reads, then the two constant
/// ones, then zeros.
class Feature {
 public:
  __device__ Feature(const TokenShape& shape, const TransitionArrays& transitions, int number)
      : words_(transitions.actions), stride_(1), kind_(Kind::kConstant), value_(0) {
    const int of_action = number - 2, behind = of_action - shape.actions;
    if (number < 2) {
      words_ = transitions.states + number, stride_ = 2, kind_ = Kind::kWhole;
    } else if (of_action < shape.actions) {
      kind_ = Kind::kChoice, value_ = of_action;
    } else if (behind == 0) {
      words_ = reinterpret_cast<const int32_t*>(transitions.rewards), kind_ = Kind::kReal;
    } else if (behind < 3) {
      words_ = transitions.next_states + (behind - 1), stride_ = 2, kind_ = Kind::kWhole;
    } else {
      value_ = behind < 3 + kOnes ? 1 : 0;
    }
  }

  /// The feature of a transition. It has no branches, because the lanes of a warp have different features.
  __device__ float of(int transition) const {
    const int32_t word = words_[stride_ * transition];
    const float number = kind_ == Kind::kReal ? __int_as_float(word) : static_cast<float>(word);
    const float constant = static_cast<float>(kind_ == Kind::kChoice ? word == value_ : value_);
    return kind_ == Kind::kReal || kind_ == Kind::kWhole ? number : constant;
  }

 private:
  enum class Kind { kWhole, kReal, kChoice, kConstant };

  const int32_t* words_;
  int stride_;
  Kind kind_;
  int value_;  ///< the constant, or the action for which the feature is 1
};

/// Starts to copy a word of one of the batch's columns to shared memory; without `copied` it is set to 0.
__device__ inline void start_copy_of_word(void* to, const void* column, int64_t word, bool copied) {
  const auto* const words = static_cast<const float*>(column);
  start_copy_or_clear(static_cast<float*>(to), copied ? words + word : words, copied);
}

/// The batch's columns of the 16 transitions of a warp tile, of several sequences, which a warp copies to
/// shared memory. All lanes then read all of them.
struct TransitionCopies {
  static constexpr int kTransitions = kStages * kWarpTile;

  int32_t states[2 * kTransitions], next_states[2 * kTransitions], actions[kTransitions];
  float rewards[kTransitions];

  __device__ TransitionArrays arrays() const { return {states, actions, rewards, next_states}; }

  /// Copies the first `count` transitions from `first` on; of queries only the states. Zeros stand for the
  /// others.
  __device__ void start_copy(int stage, const TransitionArrays& from, int64_t first, int count,
                             bool are_queries) {
    const int lane = threadIdx.x % kWarp, place = lane % kWarpTile;
    start_copy_of_word(&states[stage * kWarp + lane], from.states, 2 * first + lane, lane < 2 * count);
    if (are_queries) return;
    start_copy_of_word(&next_states[stage * kWarp + lane], from.next_states, 2 * first + lane,
                       lane < 2 * count);
    const bool of_rewards = lane >= kWarpTile;
    const int at = stage * kWarpTile + place;
    start_copy_of_word(of_rewards ? static_cast<void*>(&rewards[at]) : &actions[at],
                       of_rewards ? static_cast<const void*>(from.rewards) : from.actions, first + place,
                       place < count);
  }
};

/// The state of a transition among copied ones, given both coordinates of each.
__device__ inline int state_of(const TokenShape& shape, const int32_t* states, int transition) {
  return states[2 * transition] * shape.grid_size + states[2 * transition + 1];
}

}  // namespace adtrain::kernels::token_embedding
