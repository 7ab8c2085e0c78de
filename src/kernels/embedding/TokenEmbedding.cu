#include "kernels/embedding/TokenEmbedding.cuh"
#include "kernels/embedding/TokenEmbedding.h"
#include "kernels/primitives/EarlyStart.cuh"
#include "kernels/primitives/Instructions.cuh"
#include "kernels/primitives/RowProducts.cuh"

namespace adtrain::kernels {
namespace {

using namespace token_embedding;

/// The weight of a feature for one column of x. It has no branches, so that all of a lane's loads are in
/// flight at once.
__device__ Bf16 weight_of(const TokenShape& shape, const EmbeddingWeights& weights, int feature, int column) {
  const int features = shape.features();
  const Bf16* of_column = feature == features ? weights.context_bias : weights.type;
  of_column =
      feature < features ? weights.context_weight + int64_t{column} * features + feature : of_column + column;
  const Bf16 weight = __ldg(of_column);
  return feature < features + kOnes ? weight : Bf16{};
}

__device__ uint32_t pair_of(Bf16 first, Bf16 second) {
  return __bfloat16_as_ushort(first) | uint32_t{__bfloat16_as_ushort(second)} << 16;
}

/// The grid: slices, warp tiles, columns. Lane (row, quad) computes chunks of tokens `row` and `row` + 8. It
/// loads their features 4 · quad … 4 · quad + 3.
template <int Columns>
__global__ void __launch_bounds__(kThreads, 2)
    embed_kernel(TokenShape shape, int tokens, TransitionArrays transitions, EmbeddingWeights weights,
                 Bf16* x) {
  follow_kernels_ahead();
  const auto [row, quad] = quad_place();
  const int first_column = static_cast<int>(blockIdx.z) * Columns;
  const int token_of[2] = {static_cast<int>(blockIdx.y) * kWarpTile + row,
                           static_cast<int>(blockIdx.y) * kWarpTile + row + 8};

  const Feature features[4] = {{shape, transitions, 4 * quad},
                               {shape, transitions, 4 * quad + 1},
                               {shape, transitions, 4 * quad + 2},
                               {shape, transitions, 4 * quad + 3}};
  const auto position_of = [&](int any_token) {
    const int token = min(any_token, tokens - 1), query = token - shape.context;
    return query < 0 ? token : shape.first_query() + query;
  };
  const auto chunks_of = [&](const Bf16* table, int which) {
    return Chunks<Columns>(table + int64_t{which} * shape.width + first_column);
  };
  const Chunks<Columns> positions[2] = {chunks_of(weights.positions, position_of(token_of[0])),
                                        chunks_of(weights.positions, position_of(token_of[1]))};
  uint32_t right[kTiles<Columns>][2];
#pragma unroll
  for (int tile = 0; tile < kTiles<Columns>; ++tile) {
    const int column = first_column + chunk_column(tile, row);
#pragma unroll
    for (int pair = 0; pair < 2; ++pair) {
      const int feature = 4 * quad + 2 * pair;
      right[tile][pair] =
          pair_of(weight_of(shape, weights, feature, column), weight_of(shape, weights, feature + 1, column));
    }
  }

  const int warp = static_cast<int>(blockIdx.x) * kWarps + threadIdx.x / kWarp;
  for (int sequence = warp; sequence < shape.sequences; sequence += gridDim.x * kWarps) {
    float seen[2][4];
#pragma unroll
    for (int half = 0; half < 2; ++half) {
#pragma unroll
      for (int k = 0; k < 4; ++k) {
        seen[half][k] = features[k].of(shape, sequence, token_of[half]);
      }
    }
    const LeftFragment left = {{packed(seen[0][0], seen[0][1]), packed(seen[1][0], seen[1][1]),
                                packed(seen[0][2], seen[0][3]), packed(seen[1][2], seen[1][3])}};
    Sums sums[kTiles<Columns>];
#pragma unroll
    for (int tile = 0; tile < kTiles<Columns>; ++tile) {
      sums[tile] = no_sums();
      multiply_add(sums[tile], left, right[tile][0], right[tile][1]);
    }
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const int token = token_of[half];
      if (token >= tokens) continue;
      if (token >= shape.context) {
        const int64_t transition = int64_t{sequence} * shape.transitions + position_of(token);
        const int state = state_of(shape, transitions.states, transition);
        add_chunks(sums, half, chunks_of(weights.query_states, state));
      }
      add_chunks(sums, half, positions[half]);
      const int64_t row_of_x = int64_t{sequence} * tokens + token;
      store_chunks<Columns>(sums, half, 1.0f, x + row_of_x * shape.width + first_column);
    }
  }
}

}  // namespace

void embed_tokens(const TokenShape& shape, const TransitionArrays& transitions,
                  const EmbeddingWeights& weights, __nv_bfloat16* x, cudaStream_t stream) {
  const auto launch = [&](auto kernel, const dim3& grid) {
    launch_early("embed_kernel", kernel, grid, kThreads, 0, stream, shape, shape.tokens(), transitions,
                 weights, x);
  };
  if (shape.width % 64 == 0) {
    launch(embed_kernel<64>, grid_of<64>(shape));
  } else {
    launch(embed_kernel<32>, grid_of<32>(shape));
  }
}

}  // namespace adtrain::kernels
