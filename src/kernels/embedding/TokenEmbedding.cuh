#pragma once

#include "base/Cuda.h"
#include "kernels/embedding/TokenEmbedding.h"
#include "kernels/primitives/RowProducts.cuh"

/// A warp works on a warp tile of 16 neighbouring tokens, sequence after sequence, so that the tokens'
/// position embeddings stay in registers. A transition's features are a row of 16. Both directions are
/// products on the tensor cores:
///
///     forward: x = position + features · weights       backward: dweights = featuresᵀ · dx, dposition = Σ dx
///
/// The bias and the type embedding are the weights of two more features, which are always 1. Queries have no
/// features.
namespace adtrain::kernels::token_embedding {

constexpr int kWarps = 8, kThreads = kWarps * kWarp;
constexpr int kSequencesAWarp = 4;  ///< approximately: enough warps to hide loads, few enough partial sums
constexpr int kFeatureRow = 16;
constexpr int kOnes = 2;  ///< features that are always 1
static_assert(TokenShape::kMostActions + 5 + kOnes <= kFeatureRow);

/// The warp tiles of a sequence's tokens, and the slices of all sequences. A thread block works on one of
/// each.
inline int warp_tiles_of(const TokenShape& shape) {
  return static_cast<int>(gpu::divided_up(shape.tokens(), kWarpTile));
}
inline int slices_of(const TokenShape& shape) {
  return static_cast<int>(gpu::divided_up(shape.sequences, kWarps * kSequencesAWarp));
}
template <int Columns>
dim3 grid_of(const TokenShape& shape) {
  return {static_cast<unsigned>(slices_of(shape)), static_cast<unsigned>(warp_tiles_of(shape)),
          static_cast<unsigned>(shape.width / Columns)};
}

/// One feature of transitions: first those that embed_context reads, then the two constant ones, then zeros.
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

  /// The feature of a token of a sequence; 0 for a query. It has no branches, because the lanes of a warp
  /// have different features, and so that several loads are in flight at once.
  __device__ float of(const TokenShape& shape, int sequence, int token) const {
    const int64_t transition = int64_t{sequence} * shape.transitions + (token < shape.context ? token : 0);
    const float value = value_of(__ldg(words_ + stride_ * transition));
    return token < shape.context ? value : 0.0f;
  }
  /// The feature of a transition where the arrays are copies in shared memory.
  __device__ float of_copied(int transition) const { return value_of(words_[stride_ * transition]); }

 private:
  enum class Kind { kWhole, kReal, kChoice, kConstant };

  __device__ float value_of(int32_t word) const {
    const float number = kind_ == Kind::kReal ? __int_as_float(word) : static_cast<float>(word);
    const float constant = static_cast<float>(kind_ == Kind::kChoice ? word == value_ : value_);
    return kind_ == Kind::kReal || kind_ == Kind::kWhole ? number : constant;
  }

  const int32_t* words_;
  int stride_;
  Kind kind_;
  int value_;  ///< the constant, or the action for which the feature is 1
};

__device__ inline int state_of(const TokenShape& shape, const int32_t* states, int64_t transition) {
  return __ldg(states + 2 * transition) * shape.grid_size + __ldg(states + 2 * transition + 1);
}

}  // namespace adtrain::kernels::token_embedding
