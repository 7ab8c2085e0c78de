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

/// What a thread block of embed_kernel has in shared memory.
template <int Columns>
struct EmbedMemory {
  static_assert(kFeatureRow / 2 * Columns % kThreads == 0);
  TransitionCopies copies[kWarps];
  /// Pairs of features' weights. The odd length avoids bank conflicts.
  uint32_t weights[kFeatureRow / 2][Columns + 1];
};

/// The grid: slices, warp tiles of the context and then of the queries, columns. Lane (row, quad) computes
/// chunks of tokens `row` and `row` + 8, and has their features 4 · quad … 4 · quad + 3.
template <int Columns, class Short>
__global__ void __launch_bounds__(kThreads, 2)
    embed_kernel(TokenShape shape, int tokens, int context_tiles, TransitionArrays transitions,
                 EmbeddingWeights weights, Bf16* x) {
  follow_kernels_ahead();
  auto& memory = *reinterpret_cast<EmbedMemory<Columns>*>(dynamic_shared_memory());
  const auto [row, quad] = quad_place();
  const int first_column = static_cast<int>(blockIdx.z) * Columns, tile = static_cast<int>(blockIdx.y);
  const bool are_queries = tile >= context_tiles;
  const int first = (are_queries ? tile - context_tiles : tile) * kWarpTile;
  const int here = min(kWarpTile, (are_queries ? shape.queries : shape.context) - first);
  const int first_token = are_queries ? shape.context + first : first;
  const int first_position = are_queries ? shape.first_query() + first : first;

  TransitionCopies& copies = memory.copies[threadIdx.x / kWarp];
  const int first_sequence = static_cast<int>(blockIdx.x * kWarps + threadIdx.x / kWarp);
  const int apart = static_cast<int>(gridDim.x * kWarps);
  const auto start_copies = [&](int sequence, int stage) {
    if (sequence < shape.sequences) {
      copies.start_copy(stage, transitions, int64_t{sequence} * shape.transitions + first_position, here,
                        are_queries);
    }
    close_copies();
  };
#pragma unroll 1
  for (int stage = 0; stage < kStages; ++stage) start_copies(first_sequence + stage * apart, stage);

  const auto chunks_of = [&](const Bf16* table, int which) {
    return Chunks<Columns>(table + int64_t{which} * shape.width + first_column);
  };
  const Chunks<Columns> positions[2] = {
      chunks_of(weights.positions, first_position + min(row, here - 1)),
      chunks_of(weights.positions, first_position + min(row + 8, here - 1))};
  if (!are_queries) {
#pragma unroll
    for (int first_place = 0; first_place < kFeatureRow / 2 * Columns; first_place += kThreads) {
      const int place = first_place + threadIdx.x, pair = place / Columns, column = place % Columns;
      memory.weights[pair][column] = pair_of(weight_of(shape, weights, 2 * pair, first_column + column),
                                             weight_of(shape, weights, 2 * pair + 1, first_column + column));
    }
    __syncthreads();
  }
  uint32_t right[kTiles<Columns>][2];
#pragma unroll
  for (int column_tile = 0; column_tile < kTiles<Columns>; ++column_tile) {
#pragma unroll
    for (int pair = 0; pair < 2; ++pair) {
      right[column_tile][pair] =
          are_queries ? 0 : memory.weights[2 * quad + pair][chunk_column(column_tile, row)];
    }
  }
  const TransitionArrays copied = copies.arrays();
  const Feature features[4] = {{shape, copied, 4 * quad},
                               {shape, copied, 4 * quad + 1},
                               {shape, copied, 4 * quad + 2},
                               {shape, copied, 4 * quad + 3}};

#pragma unroll 1
  for (int sequence = first_sequence, stage = 0; sequence < shape.sequences;
       sequence += apart, stage = (stage + 1) % kStages) {
    copies_arrived_but_last<kStages - 1>();
    __syncwarp();
    const int first_copy = stage * kWarpTile + row;
    Sums sums[kTiles<Columns>];
#pragma unroll
    for (int column_tile = 0; column_tile < kTiles<Columns>; ++column_tile) sums[column_tile] = no_sums();
    if (are_queries) {
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        const int state = state_of(shape, copies.states, first_copy + 8 * half);
        add_chunks<Columns, Short>(sums, half, chunks_of(weights.query_states, state));
      }
    } else {
      float seen[2][4];
#pragma unroll
      for (int half = 0; half < 2; ++half) {
#pragma unroll
        for (int k = 0; k < 4; ++k) seen[half][k] = features[k].of(first_copy + 8 * half);
      }
      const LeftFragment left = {
          {packed<Short>(seen[0][0], seen[0][1]), packed<Short>(seen[1][0], seen[1][1]),
           packed<Short>(seen[0][2], seen[0][3]), packed<Short>(seen[1][2], seen[1][3])}};
#pragma unroll
      for (int column_tile = 0; column_tile < kTiles<Columns>; ++column_tile) {
        multiply_add<Short>(sums[column_tile], left, right[column_tile][0], right[column_tile][1]);
      }
    }
    __syncwarp();
    start_copies(sequence + kStages * apart, stage);
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      if (row + 8 * half >= here) continue;
      add_chunks<Columns, Short>(sums, half, positions[half]);
      const int64_t row_of_x = int64_t{sequence} * tokens + first_token + row + 8 * half;
      store_chunks<Columns, Short>(sums, half, 1.0f, x + row_of_x * shape.width + first_column);
    }
  }
}

}  // namespace

void embed_tokens(const TokenShape& shape, const TransitionArrays& transitions,
                  const EmbeddingWeights& weights, __nv_bfloat16* x, cudaStream_t stream) {
  const Division by = Division::of(shape);
  const dim3 grid(static_cast<unsigned>(by.slices), static_cast<unsigned>(by.context_tiles + by.query_tiles),
                  static_cast<unsigned>(shape.width / columns_at_once(shape)));
  const auto launch = [&](auto kernel, size_t memory) {
    launch_early("embed_kernel", kernel, grid, kThreads, static_cast<int>(memory), stream, shape,
                 shape.tokens(), by.context_tiles, transitions, weights, x);
  };
  with_type(shape.type, [&](auto type) {
    using Short = decltype(type);
    if (columns_at_once(shape) == 64) {
      launch(embed_kernel<64, Short>, sizeof(EmbedMemory<64>));
    } else {
      launch(embed_kernel<32, Short>, sizeof(EmbedMemory<32>));
    }
  });
}

}  // namespace adtrain::kernels
