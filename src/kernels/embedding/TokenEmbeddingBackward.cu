#include <algorithm>

#include "base/Cuda.h"
#include "kernels/embedding/TokenEmbedding.cuh"
#include "kernels/embedding/TokenEmbedding.h"
#include "kernels/primitives/EarlyStart.cuh"
#include "kernels/primitives/Instructions.cuh"
#include "kernels/primitives/RowProducts.cuh"

namespace adtrain::kernels {
namespace {

using namespace token_embedding;

constexpr int kSumWarps = 8, kSumThreads = kSumWarps * kWarp;  ///< of the kernel that adds the partial sums
constexpr int64_t kMostStateSums = 1 << 22;  ///< over all parts, unless a single part has more

/// The parts of the slices of all query tiles. A thread block works on one part.
int state_parts_of(const TokenShape& shape, const Division& by) {
  const int64_t affordable = std::max<int64_t>(kMostStateSums / (int64_t{shape.states()} * shape.width), 1);
  return static_cast<int>(std::min(int64_t{by.slices} * by.query_tiles, affordable));
}

/// The partial sums, in fp32, of gather_kernel's thread blocks.
struct PartialSums {
  float* of_features;  ///< (slices · context tiles, 16, D)
  float* of_tokens;    ///< (slices, T, D)
  float* of_states;    ///< (parts of the queries, states, D)
};

PartialSums partial_sums_in(float* memory, const TokenShape& shape, const Division& by) {
  float* const of_tokens = memory + int64_t{by.slices} * by.context_tiles * kFeatureRow * shape.width;
  return {memory, of_tokens, of_tokens + int64_t{by.slices} * shape.tokens() * shape.width};
}

/// A warp tile of dx in shared memory, which a warp copies.
template <int Columns>
struct CopiedRows {
  Bf16 values[kWarpTile * Columns];

  __device__ Tile<Columns> tile() { return {values}; }

  /// `from`: the first row's `Columns` elements. Zeros stand for rows beyond `rows`.
  __device__ void start_copy(const Bf16* from, int width, int rows) {
    constexpr int kChunks = Columns / 8;
#pragma unroll
    for (int first = 0; first < kWarpTile * kChunks; first += kWarp) {
      const int chunk = first + threadIdx.x % kWarp, row = chunk / kChunks, column = 8 * (chunk % kChunks);
      const bool copied = row < rows;
      start_copy_or_clear(tile().at(row, column), copied ? from + row * width + column : from, copied);
    }
  }
};

/// The row of a warp tile that is element k of those which a lane has of a left operand.
__device__ inline int row_of(int k) {
  return 2 * quad_place().quad + k % 2 + 8 * (k / 2);
}

/// The left operand that adds rows to sums: 1 where a row of the left operand is that to which row_of(k) is
/// added, which is `behind`[k] rows behind the lane's first one, `row`.
template <class Short>
__device__ LeftFragment left_of_ones(const int (&behind)[4]) {
  constexpr uint32_t kOne = kOneBits<Short>;
  const auto ones = [&](int first, int number) {
    return (behind[first] == number ? kOne : 0) | (behind[first + 1] == number ? kOne << 16 : 0);
  };
  return {{ones(0, 0), ones(0, 8), ones(2, 0), ones(2, 8)}};
}
/// The same where each row has a sum of its own.
template <class Short>
__device__ LeftFragment left_of_own_rows() {
  const int row = quad_place().row;
  return left_of_ones<Short>({row_of(0) - row, row_of(1) - row, row_of(2) - row, row_of(3) - row});
}

template <int Columns, int Lefts>
__device__ void clear(Sums (&sums)[Lefts][kTiles<Columns>]) {
#pragma unroll
  for (int of = 0; of < Lefts; ++of) {
#pragma unroll
    for (int tile = 0; tile < kTiles<Columns>; ++tile) sums[of][tile] = no_sums();
  }
}

/// sums += left · rows, for each left operand.
template <class Short, int Columns, int Lefts>
__device__ void add_products(Sums (&sums)[Lefts][kTiles<Columns>], const LeftFragment (&left)[Lefts],
                             Tile<Columns> rows) {
#pragma unroll
  for (int tile = 0; tile < kTiles<Columns>; tile += 2) {
    const RightFragments right = right_of(rows, 0, 8 * tile, threadIdx.x % kWarp);
#pragma unroll
    for (int of = 0; of < Lefts; ++of)
      multiply_add<Short>(sums[of][tile], sums[of][tile + 1], left[of], right);
  }
}

/// Writes the sums of those of the left operand's rows that are among the first `rows` to `to`, 8 columns
/// of (rows, width).
__device__ inline void store_tile(const Sums& sums, float* to, int width, int rows) {
  const auto [row, column] = lane_place();
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    const int own = row + 8 * half;
    if (own >= rows) continue;
    *reinterpret_cast<float2*>(to + int64_t{own} * width + column) = {sums.value[2 * half],
                                                                      sums.value[2 * half + 1]};
  }
}
template <int Columns>
__device__ void store_tiles(const Sums (&sums)[kTiles<Columns>], float* to, int width, int rows) {
#pragma unroll
  for (int tile = 0; tile < kTiles<Columns>; ++tile) store_tile(sums[tile], to + 8 * tile, width, rows);
}

/// A thread block's place in one of the two grids of gather_kernel.
struct GridPlace {
  int x, y, z, width, height;

  __device__ GridPlace(unsigned number, const dim3& grid)
      : x(static_cast<int>(number % grid.x)),
        y(static_cast<int>(number / grid.x % grid.y)),
        z(static_cast<int>(number / grid.x / grid.y)),
        width(static_cast<int>(grid.x)),
        height(static_cast<int>(grid.y)) {}
};

/// What a warp of gather_context has in shared memory.
template <int Columns>
struct ContextCopies {
  CopiedRows<Columns> rows[kStages];
  TransitionCopies transitions;
};

/// Sums for features and for positions of transitions. The grid: slices, warp tiles of the context, columns.
/// A warp takes its sequences one after another and copies the next ones meanwhile. There are two left
/// operands: the features, of which lane (row, quad) has `row` and `row` + 8, and one that adds each token's
/// row to a sum of its own.
template <int Columns, class Short>
__device__ void gather_context(const GridPlace& block, const TokenShape& shape, int tokens,
                               const TransitionArrays& transitions, const Bf16* dx,
                               const PartialSums& parts) {
  auto* const copies_of_warps = reinterpret_cast<ContextCopies<Columns>*>(dynamic_shared_memory());
  const int row = quad_place().row, warp = threadIdx.x / kWarp, first_column = block.z * Columns;
  const int first_token = block.y * kWarpTile, tokens_here = min(kWarpTile, shape.context - first_token);
  ContextCopies<Columns>& copies = copies_of_warps[warp];

  const int first_sequence = block.x * kWarps + warp, apart = block.width * kWarps;
  const auto start_copies = [&](int sequence, int stage) {
    if (sequence < shape.sequences) {
      const int64_t first_row = int64_t{sequence} * tokens + first_token;
      copies.rows[stage].start_copy(dx + first_row * shape.width + first_column, shape.width, tokens_here);
      copies.transitions.start_copy(stage, transitions, int64_t{sequence} * shape.transitions + first_token,
                                    tokens_here, false);
    }
    close_copies();
  };
#pragma unroll 1
  for (int stage = 0; stage < kStages; ++stage) start_copies(first_sequence + stage * apart, stage);

  const TransitionArrays copied = copies.transitions.arrays();
  const Feature low(shape, copied, row), high(shape, copied, row + 8);
  const LeftFragment own_rows = left_of_own_rows<Short>();
  Sums sums[2][kTiles<Columns>];
  clear<Columns>(sums);
#pragma unroll 1
  for (int sequence = first_sequence, stage = 0; sequence < shape.sequences;
       sequence += apart, stage = (stage + 1) % kStages) {
    copies_arrived_but_last<kStages - 1>();
    __syncwarp();
    float seen_low[4], seen_high[4];
#pragma unroll
    for (int k = 0; k < 4; ++k) {
      seen_low[k] = low.of(stage * kWarpTile + row_of(k));
      seen_high[k] = high.of(stage * kWarpTile + row_of(k));
    }
    add_products<Short, Columns>(sums, {left_of_rows<Short>(seen_low, seen_high), own_rows},
                                 copies.rows[stage].tile());
    __syncwarp();
    start_copies(sequence + kStages * apart, stage);
  }

  // All copies have been read: the warps' sums take their place.
  constexpr int kBoth = 2 * kTiles<Columns>;
  using OfWarp = float4[kBoth][kWarp];
  static_assert(sizeof(OfWarp) <= sizeof(ContextCopies<Columns>));
  auto* const of_warps = reinterpret_cast<OfWarp*>(dynamic_shared_memory());
  const int lane = threadIdx.x % kWarp;
  __syncthreads();
#pragma unroll
  for (int number = 0; number < kBoth; ++number) {
    const float(&value)[4] = sums[number / kTiles<Columns>][number % kTiles<Columns>].value;
    of_warps[warp][number][lane] = {value[0], value[1], value[2], value[3]};
  }
  __syncthreads();
  const int64_t first_feature = (int64_t{block.x} * block.height + block.y) * kFeatureRow;
  const int64_t first_of_tokens = int64_t{block.x} * tokens + first_token;
#pragma unroll
  for (int number = warp; number < kBoth; number += kWarps) {
    float4 sum = {0, 0, 0, 0};
#pragma unroll
    for (int other = 0; other < kWarps; ++other) {
      const float4 more = of_warps[other][number][lane];
      sum = {sum.x + more.x, sum.y + more.y, sum.z + more.z, sum.w + more.w};
    }
    const bool of_features = number < kTiles<Columns>;
    float* const to = of_features ? parts.of_features + first_feature * shape.width
                                  : parts.of_tokens + first_of_tokens * shape.width;
    store_tile({{sum.x, sum.y, sum.z, sum.w}}, to + first_column + 8 * (number % kTiles<Columns>),
               shape.width, of_features ? kFeatureRow : tokens_here);
  }
}

/// What a thread block of gather_queries has in shared memory for one sequence of each warp: dx of 16
/// queries, and their states.
template <int Columns>
struct QueryCopies {
  CopiedRows<Columns> rows[kWarps];
  int32_t states[kWarps][2 * kWarpTile];
};

/// Sums for states and for positions of queries: products with a left operand of ones and zeros, 16 rows of
/// which are the queries of a warp tile, and the rows behind them the states. The grid: parts of the slices
/// of all warp tiles, parts of the left operand's rows, columns. Each warp copies a sequence and multiplies
/// all warps' sequences by 16 rows of the left operand, so that dx is read once and the sums need not be
/// added.
template <int Columns, class Short>
__device__ void gather_queries(const GridPlace& block, const TokenShape& shape, int tokens,
                               const Division& by, const int32_t* states, const Bf16* dx,
                               const PartialSums& parts) {
  auto* const stages = reinterpret_cast<QueryCopies<Columns>*>(dynamic_shared_memory());
  const int row = quad_place().row, lane = threadIdx.x % kWarp, warp = threadIdx.x / kWarp,
            first_column = block.z * Columns;
  const int left_tile = block.y * kWarps + warp, first_state = (left_tile - 1) * kWarpTile;
  const int left_tiles = 2 + (shape.states() - 1) / kWarpTile;
  const LeftFragment own_rows = left_of_own_rows<Short>();
  Sums sums[1][kTiles<Columns>];
  clear<Columns>(sums);

  // Slice after slice of this thread block, in steps of kWarps sequences.
  const int steps = (shape.sequences - 1) / (by.slices * kWarps) + 1, slices = by.slices * by.query_tiles;
  struct Place {
    int slice, step;
  };
  const auto next_of = [&](const Place& place) {
    const bool is_last = place.step + 1 == steps;
    return Place{place.slice + (is_last ? block.width : 0), is_last ? 0 : place.step + 1};
  };
  const auto queries_from = [&](int first_query) { return min(kWarpTile, shape.queries - first_query); };
  const auto start_copies = [&](const Place& place, QueryCopies<Columns>& to) {
    if (place.slice < slices) {
      const int first_query = place.slice / by.slices * kWarpTile, slice = place.slice % by.slices;
      const int sequence = (place.step * by.slices + slice) * kWarps + warp;
      const int count = sequence < shape.sequences ? queries_from(first_query) : 0;
      const int64_t any_sequence = min(sequence, shape.sequences - 1);
      const int64_t first_row = any_sequence * tokens + shape.context + first_query;
      to.rows[warp].start_copy(dx + first_row * shape.width + first_column, shape.width, count);
      const int64_t transition = any_sequence * shape.transitions + shape.first_query() + first_query;
      start_copy_of_word(&to.states[warp][lane], states, 2 * transition + lane, lane < 2 * count);
    }
    close_copies();
  };

  Place ahead = {block.x, 0};
#pragma unroll 1
  for (int stage = 0; stage < kStages - 1; ++stage, ahead = next_of(ahead)) {
    start_copies(ahead, stages[stage]);
  }
  Place place = {block.x, 0};
#pragma unroll 1
  for (int stage = 0; place.slice < slices; stage = (stage + 1) % kStages, place = next_of(place)) {
    copies_arrived_but_last<kStages - 2>();
    __syncthreads();
    // Into the memory that all warps have read a step ago.
    start_copies(ahead, stages[(stage + kStages - 1) % kStages]);
    ahead = next_of(ahead);
    if (left_tile >= left_tiles) continue;
    QueryCopies<Columns>& copies = stages[stage];
#pragma unroll 4
    for (int of = 0; of < kWarps; ++of) {
      LeftFragment left = own_rows;
      if (left_tile > 0) {
        int behind[4];
#pragma unroll
        for (int k = 0; k < 4; ++k) {
          behind[k] = state_of(shape, copies.states[of], row_of(k)) - first_state - row;
        }
        left = left_of_ones<Short>(behind);
      }
      add_products<Short, Columns>(sums, {left}, copies.rows[of].tile());
    }
    if (left_tile == 0 && place.step + 1 == steps) {
      const int first_query = place.slice / by.slices * kWarpTile;
      const int64_t to = int64_t{place.slice % by.slices} * tokens + shape.context + first_query;
      store_tiles<Columns>(sums[0], parts.of_tokens + to * shape.width + first_column, shape.width,
                           queries_from(first_query));
      clear<Columns>(sums);
    }
  }
  if (left_tile == 0 || left_tile >= left_tiles) return;
  const int64_t to = int64_t{block.x} * shape.states() + first_state;
  store_tiles<Columns>(sums[0], parts.of_states + to * shape.width + first_column, shape.width,
                       shape.states() - first_state);
}

/// Thread blocks of both kinds run beside each other, those of queries first.
template <int Columns, class Short>
__global__ void __launch_bounds__(kThreads, 2)
    gather_kernel(TokenShape shape, int tokens, Division by, dim3 queries_grid, dim3 context_grid,
                  TransitionArrays transitions, const Bf16* dx, PartialSums parts) {
  follow_kernels_ahead();
  const unsigned of_queries = queries_grid.x * queries_grid.y * queries_grid.z;
  if (blockIdx.x < of_queries) {
    gather_queries<Columns, Short>({blockIdx.x, queries_grid}, shape, tokens, by, transitions.states, dx,
                                   parts);
  } else {
    gather_context<Columns, Short>({blockIdx.x - of_queries, context_grid}, shape, tokens, transitions, dx,
                                   parts);
  }
}

/// The sum of one column over `count` partial sums, which are `stride` floats apart. Many loads are in flight
/// at once, the last ones too.
__device__ float sum_of_parts(const float* parts, int count, int64_t stride) {
  constexpr int kAtOnce = 16;
  float sum = 0;
#pragma unroll 1
  for (int left = count; left > 0; left -= kAtOnce) {
    float value[kAtOnce];
#pragma unroll
    for (int k = 0; k < kAtOnce; ++k) {
      value[k] = k < left ? __ldg(parts) : 0.0f;
      parts += stride;
    }
#pragma unroll
    for (int k = 0; k < kAtOnce; ++k) sum += value[k];
  }
  return sum;
}

/// A thread block computes 32 columns of one gradient row: of a feature, then of a position, then of a
/// query's state. A position may have two tokens; then each has half of the warps.
__global__ void __launch_bounds__(kSumThreads, 5)
    sum_kernel(TokenShape shape, int tokens, Division by, int state_parts, PartialSums parts,
               EmbeddingGradients gradients) {
  __shared__ float of_warps[kSumWarps][kWarp];
  const int lane = threadIdx.x % kWarp, warp = threadIdx.x / kWarp;
  const int column = static_cast<int>(blockIdx.y) * kWarp + lane;
  const int features = shape.features(), feature = static_cast<int>(blockIdx.x);
  const int position = feature - features - kOnes, state = position - shape.transitions;

  const float* from;
  float* gradient;
  int row, rows, count, first = warp, warps = kSumWarps;
  if (position < 0) {
    from = parts.of_features, row = feature, rows = kFeatureRow, count = by.slices * by.context_tiles;
    gradient = feature < features    ? gradients.context_weight + int64_t{column} * features + feature
               : feature == features ? gradients.context_bias + column
                                     : gradients.type + column;
  } else if (state < 0) {
    const bool is_transition = position < shape.context, is_query = position >= shape.first_query();
    if (is_transition && is_query) warps = kSumWarps / 2, first = warp % warps;
    const bool takes_query = is_transition && is_query ? warp >= warps : is_query;
    from = parts.of_tokens, rows = tokens, count = is_transition || is_query ? by.slices : 0;
    row = takes_query ? shape.context + position - shape.first_query() : position;
    gradient = gradients.positions + int64_t{position} * shape.width + column;
  } else {
    from = parts.of_states, row = state, rows = shape.states(), count = state_parts;
    gradient = gradients.query_states + int64_t{state} * shape.width + column;
  }
  const int64_t stride = int64_t{rows} * shape.width;

  follow_kernels_ahead();
  const float before = warp == 0 ? *gradient : 0.0f;  // on its way together with the partial sums
  const int own_count = first < count ? (count - 1 - first) / warps + 1 : 0;
  of_warps[warp][lane] =
      sum_of_parts(from + first * stride + int64_t{row} * shape.width + column, own_count, warps * stride);
  __syncthreads();
  if (warp != 0) return;
  float sum = 0;
#pragma unroll
  for (int other = 0; other < kSumWarps; ++other) sum += of_warps[other][lane];
  *gradient = before + sum;
}

}  // namespace

int64_t embedding_partial_sums(const TokenShape& shape) {
  const Division by = Division::of(shape);
  const int64_t rows = int64_t{by.slices} * (int64_t{by.context_tiles} * kFeatureRow + shape.tokens()) +
                       int64_t{state_parts_of(shape, by)} * shape.states();
  return rows * shape.width;
}

void embed_tokens_backward(const TokenShape& shape, const TransitionArrays& transitions,
                           const __nv_bfloat16* dx, float* partial_sums, const EmbeddingGradients& gradients,
                           cudaStream_t stream) {
  const Division by = Division::of(shape);
  const int state_parts = state_parts_of(shape, by);
  const PartialSums parts = partial_sums_in(partial_sums, shape, by);
  const auto unsigned_of = [](int64_t number) { return static_cast<unsigned>(number); };
  const unsigned columns = unsigned_of(shape.width / columns_at_once(shape));
  const dim3 queries_grid(unsigned_of(state_parts),
                          unsigned_of(gpu::divided_up(1 + tiles_of(shape.states()), kWarps)), columns),
      context_grid(unsigned_of(by.slices), unsigned_of(by.context_tiles), columns);
  const auto launch = [&](auto kernel, size_t of_context, size_t of_queries) {
    launch_early(
        "gather_kernel", kernel,
        queries_grid.x * queries_grid.y * queries_grid.z + context_grid.x * context_grid.y * context_grid.z,
        kThreads, static_cast<int>(std::max(kWarps * of_context, kStages * of_queries)), stream, shape,
        shape.tokens(), by, queries_grid, context_grid, transitions, dx, parts);
  };
  with_type(shape.type, [&](auto type) {
    using Short = decltype(type);
    if (columns_at_once(shape) == 64) {
      launch(gather_kernel<64, Short>, sizeof(ContextCopies<64>), sizeof(QueryCopies<64>));
    } else {
      launch(gather_kernel<32, Short>, sizeof(ContextCopies<32>), sizeof(QueryCopies<32>));
    }
  });
  const dim3 outputs(unsigned_of(shape.features() + kOnes + shape.transitions + shape.states()),
                     unsigned_of(shape.width / kWarp));
  launch_early("sum_kernel", sum_kernel, outputs, kSumThreads, 0, stream, shape, shape.tokens(), by,
               state_parts, parts, gradients);
}

}  // namespace adtrain::kernels
