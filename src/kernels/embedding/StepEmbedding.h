#pragma once

#include <cstdint>

#include <cuda_bf16.h>
#include <driver_types.h>

#include "kernels/primitives/MatrixRows.h"

/// From steps to the tokens of GPT-2's networks, three a step, and their gradients. All arrays are in the
/// GPU's memory and borrowed; where nothing else is said they are dense and row-major. Calls return at once
/// and throw EnvironmentError where a kernel cannot be launched. Gpt2Ad's plain operators define the correct
/// results.
namespace adtrain::kernels {

/// Each of B rows has L states, and between neighbouring ones an action and a reward: s a r s a r … s.
struct StepShape {
  int sequences;  ///< B
  int states;     ///< L ≥ 1
  int width;      ///< D, a multiple of 32
  int actions;    ///< A
  int grid_size;
  ShortType type = ShortType::kBFloat16;

  static constexpr int kKinds = 3;  ///< of tokens: state, action, reward
  /// Beyond these the backward pass, which reads gradients again for each table in shared memory, takes long.
  static constexpr int kMostCells = 1536;

  __host__ __device__ int tokens() const { return kKinds * states - 2; }  ///< T
  __host__ __device__ int cells() const { return grid_size * grid_size; }
};

/// Columns of a batch; see data/Batch.h.
struct StepArrays {
  const int32_t* states;   ///< (B, L, 2)
  const int32_t* actions;  ///< (B, steps)
  const float* rewards;    ///< (B, steps)
  int steps;               ///< at least L − 1, which are read
};

/// Like x and its gradient below, of bits of the shape's type.
struct StepWeights {
  const __nv_bfloat16* states;                       ///< (cells, D)
  const __nv_bfloat16* actions;                      ///< (A, D)
  const __nv_bfloat16 *reward_weight, *reward_bias;  ///< (D)
  const __nv_bfloat16* positions;                    ///< (at least T, D)
};

/// x (B, T, D): a token's row of its table, or its reward times the weight plus the bias, plus its position.
/// Each row is rounded once.
void embed_steps(const StepShape& shape, const StepArrays& steps, const StepWeights& weights,
                 __nv_bfloat16* x, cudaStream_t stream);

/// The gradients of the weights as partial sums, which add_parts() adds up.
struct StepGradientParts {
  float* of_positions;  ///< (position_parts, T, D)
  /// (table_parts, table_size): gradients of states, actions, reward_weight and reward_bias, each from its
  /// offset on. What lies between them is not written.
  float* of_tables;
  int64_t table_size;
  int64_t states, actions, reward_weight, reward_bias;  ///< offsets

  static int position_parts(const StepShape& shape);
  static int table_parts(const StepShape& shape);
};

/// Given the gradient `dx` (B, T, D). Deterministic.
void embed_steps_backward(const StepShape& shape, const StepArrays& steps, const __nv_bfloat16* dx,
                          const StepGradientParts& parts, cudaStream_t stream);

}  // namespace adtrain::kernels
