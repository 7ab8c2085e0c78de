#pragma once

#include <vector_types.h>

/// A model as the rollout kernel reads it: plain pointers to GPU memory.
namespace adtrain::gpu {

constexpr int kMostLayers = 12;
constexpr int kActionOutputs = 5;
constexpr int kMostOutputs = 8;  ///< the actions and, with compressed context, three token types
constexpr int kEndOfRegion = 2;  ///< among the token types

/// y = x Wᵀ + b. Every weight is the sum of two bf16 numbers, its upper and its lower half. They are laid out
/// as mma.m16n8k16 takes its operand B: for each 8 outputs, for each 16 inputs, for each of 32 lanes four
/// words: the upper halves of inputs 2i, 2i + 1 and of 2i + 8, 2i + 9 to output g, then the lower ones
/// likewise (lane = 4g + i).
struct PackedLinear {
  const uint4* fragments;
  const float* bias;
  int inputs;   ///< a multiple of 16
  int outputs;  ///< a multiple of 8
};

/// A weight and, for LayerNorm alone, a bias.
struct PackedNorm {
  const float* weight;
  const float* bias;
};

struct PackedLayer {
  PackedLinear attention;  ///< queries of all heads, then keys of all heads, then values of all heads
  PackedLinear output;
  PackedLinear up;  ///< pre-norm: rows of SwiGLU's two halves alternate
  PackedLinear down;
  PackedNorm norm_1, norm_2;
};

struct RolloutNetwork {
  int width, heads, layer_count, inner;
  bool pre_norm;    ///< RMSNorm before, SwiGLU, rotary positions; else LayerNorm after, GELU, learned ones
  bool compressed;  ///< regions between markers
  const float* transition;       ///< (10, width): one row for each feature of a transition
  const float* transition_bias;  ///< (width)
  const float* query;            ///< (states, width)
  const float* positions;        ///< (tokens, width), post-norm alone
  const float *cosines,
      *sines;  ///< (tokens, head size / 2), pre-norm alone; a pair is two columns side by side
  const float *region_start, *region_end;  ///< (width), compressed alone
  const float* head;                       ///< (outputs, width)
  const float* head_bias;
  int outputs;
  PackedLayer layers[kMostLayers];
};

}  // namespace adtrain::gpu
