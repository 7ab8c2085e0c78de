#pragma once

#include <cstdint>

#include <cuda_bf16.h>
#include <driver_types.h>

#include "kernels/primitives/MatrixRows.h"

/// From transitions to the tokens of plain AD, and their gradients. All arrays are in the GPU's memory, dense
/// and row-major, borrowed. Calls return at once and throw EnvironmentError where a kernel cannot be
/// launched. PostNormAd's plain operators define the correct results; PreNormAd's do so for a network without
/// types and positions.
namespace adtrain::kernels {

/// Each of B rows has L transitions. The first `context` of them are tokens; then follow the queries, which
/// are the states of the last `queries` transitions.
struct TokenShape {
  int sequences;    ///< B
  int transitions;  ///< L
  int context;      ///< 0 … L
  int queries;      ///< Q: 1 … L
  int width;        ///< D, a multiple of 32
  int actions;      ///< A, 2 … kMostActions
  int grid_size;
  ShortType type = ShortType::kBFloat16;

  static constexpr int kMostActions = 8;

  int tokens() const { return context + queries; }                  ///< T
  __host__ __device__ int features() const { return actions + 5; }  ///< F
  __host__ __device__ int states() const { return grid_size * grid_size; }
  /// The index of the first query's transition, which is also its position.
  __host__ __device__ int first_query() const { return transitions - queries; }
};

/// Columns of a batch; see data/Batch.h.
struct TransitionArrays {
  const int32_t* states;       ///< (B, L, 2)
  const int32_t* actions;      ///< (B, L)
  const float* rewards;        ///< (B, L)
  const int32_t* next_states;  ///< (B, L, 2)
};

/// Like x and its gradient below, of bits of the shape's type.
struct EmbeddingWeights {
  const __nv_bfloat16 *context_weight, *context_bias;  ///< (D, F), (D)
  const __nv_bfloat16* type;                           ///< (D): the type embedding of a transition
  const __nv_bfloat16* query_states;                   ///< (grid_size², D)
  const __nv_bfloat16* positions;                      ///< (at least L, D)
};

/// The gradients of EmbeddingWeights in fp32. A call adds to them.
struct EmbeddingGradients {
  float *context_weight, *context_bias, *type, *query_states, *positions;
};

/// x (B, T, D). A transition's row is its features times context_weight, plus context_bias, type and
/// position. A query's row is its state's embedding plus its position. Each row is rounded once.
void embed_tokens(const TokenShape& shape, const TransitionArrays& transitions,
                  const EmbeddingWeights& weights, __nv_bfloat16* x, cudaStream_t stream);

/// How many floats of memory embed_tokens_backward needs for its partial sums.
int64_t embedding_partial_sums(const TokenShape& shape);

/// Adds the gradients of all weights, given the gradient `dx` (B, T, D), always in the same order.
void embed_tokens_backward(const TokenShape& shape, const TransitionArrays& transitions,
                           const __nv_bfloat16* dx, float* partial_sums, const EmbeddingGradients& gradients,
                           cudaStream_t stream);

}  // namespace adtrain::kernels
