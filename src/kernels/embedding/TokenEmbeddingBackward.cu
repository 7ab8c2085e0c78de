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

constexpr int kSumWarps = 16, kSumThreads = kSumWarps * kWarp;  ///< of the kernel that adds the partial sums
constexpr int kMostStateParts = 128;                            ///< enough parts for all multiprocessors
constexpr int64_t kMostStateSums = 1 << 22;  ///< over all parts, unless a single part has more
/// States whose sums a thread block has in shared memory: enough for a grid of 9 × 9, and two thread blocks
/// fit on a multiprocessor.
constexpr int kStatesAtATime = 96;

/// The number of parts of all queries. A thread block works on one part.
int state_parts_of(const TokenShape& shape) {
  const int64_t parts = gpu::divided_up(int64_t{shape.sequences} * shape.queries, kThreads);
  const int64_t affordable = std::max<int64_t>(kMostStateSums / (shape.states() * shape.width), 1);
  return static_cast<int>(std::min({parts, affordable, int64_t{kMostStateParts}}));
}

/// The partial sums, in fp32, of gather_kernel's thread blocks.
struct PartialSums {
  float* of_features;  ///< (slices · warp tiles, 16, D)
  float* of_tokens;    ///< (slices, T, D)
  float* of_states;    ///< (parts of the queries, states, D)
};

PartialSums partial_sums_in(float* memory, const TokenShape& shape) {
  float* const of_tokens =
      memory + int64_t{slices_of(shape)} * warp_tiles_of(shape) * kFeatureRow * shape.width;
  return {memory, of_tokens, of_tokens + int64_t{slices_of(shape)} * shape.tokens() * shape.width};
}

/// Adds the warps' sums, 16 rows of Columns each, and writes the first `rows` rows to `to` (rows, width).
template <int Columns>
__device__ void store_sum_of_warps(const float (&of_warps)[kWarps][kWarpTile * Columns], float* to, int width,
                                   int rows) {
  for (int place = 4 * threadIdx.x; place < kWarpTile * Columns; place += 4 * kThreads) {
    float4 sum = {0, 0, 0, 0};
#pragma unroll
    for (int warp = 0; warp < kWarps; ++warp) {
      const float4 more = *reinterpret_cast<const float4*>(&of_warps[warp][place]);
      sum = {sum.x + more.x, sum.y + more.y, sum.z + more.z, sum.w + more.w};
    }
    const int row = place / Columns, column = place % Columns;
    if (row < rows) *reinterpret_cast<float4*>(to + int64_t{row} * width + column) = sum;
  }
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

/// Sums for features and tokens. The grid is that of embed_kernel. Lane (row, quad) loads tokens 4 · quad … 4
/// · quad + 3: their features `row` and `row` + 8, and Columns / 8 columns of dx.
template <int Columns>
__device__ void gather_features(const GridPlace& block, const TokenShape& shape, int tokens,
                                const TransitionArrays& transitions, const Bf16* dx,
                                const PartialSums& parts) {
  using OfWarp = float[kWarpTile * Columns];
  auto& of_warps = *reinterpret_cast<OfWarp(*)[kWarps]>(dynamic_shared_memory());
  const auto [row, quad] = quad_place();
  const int warp = threadIdx.x / kWarp, first_column = block.z * Columns;
  const int warp_tile = block.y, first_token = warp_tile * kWarpTile + 4 * quad;
  const Feature low(shape, transitions, row), high(shape, transitions, row + 8);

  Sums of_features[kTiles<Columns>];
  float of_tokens[4][kTiles<Columns>] = {};
#pragma unroll
  for (int tile = 0; tile < kTiles<Columns>; ++tile) of_features[tile] = no_sums();

  for (int sequence = block.x * kWarps + warp; sequence < shape.sequences; sequence += block.width * kWarps) {
    FourRows<Columns> rows;
    float seen_low[4], seen_high[4];
#pragma unroll
    for (int k = 0; k < 4; ++k) {
      const int token = first_token + k;
      const int64_t row_of_x = int64_t{sequence} * tokens + token;
      rows.load(k, token < tokens ? dx + row_of_x * shape.width + first_column : nullptr);
      seen_low[k] = low.of(shape, sequence, token);
      seen_high[k] = high.of(shape, sequence, token);
    }
    add_product<Columns>(of_features, left_of_rows(seen_low, seen_high), rows);
#pragma unroll
    for (int k = 0; k < 4; ++k) {
#pragma unroll
      for (int word = 0; word < FourRows<Columns>::kWords; ++word) {
        const float2 values = unpacked(rows.word[k][word]);
        of_tokens[k][2 * word] += values.x;
        of_tokens[k][2 * word + 1] += values.y;
      }
    }
  }

  store_sums<Columns>(of_features, 0, 1.0f, &of_warps[warp][row * Columns]);
  store_sums<Columns>(of_features, 1, 1.0f, &of_warps[warp][(row + 8) * Columns]);
  __syncthreads();
  const int64_t part = int64_t{block.x} * block.height + warp_tile;
  store_sum_of_warps<Columns>(of_warps, parts.of_features + part * kFeatureRow * shape.width + first_column,
                              shape.width, kFeatureRow);
  __syncthreads();
#pragma unroll
  for (int k = 0; k < 4; ++k) {
#pragma unroll
    for (int tile = 0; tile < kTiles<Columns>; ++tile) {
      of_warps[warp][(4 * quad + k) * Columns + kTiles<Columns> * row + tile] = of_tokens[k][tile];
    }
  }
  __syncthreads();
  const int64_t token_of_slice = int64_t{block.x} * tokens + warp_tile * kWarpTile;
  store_sum_of_warps<Columns>(of_warps, parts.of_tokens + token_of_slice * shape.width + first_column,
                              shape.width, min(kWarpTile, tokens - warp_tile * kWarpTile));
}

/// Sums for states. The grid: parts of the queries, states, 32 columns. A warp takes its queries one after
/// another. It adds each query's row of dx, one column per lane, to the sum of the query's state in shared
/// memory: (warps, states at a time, 32) fp32.
__device__ inline void gather_states(const GridPlace& block, const TokenShape& shape, int tokens,
                                     const int32_t* states, const Bf16* dx, float* parts) {
  constexpr int kAhead = 8;  // loads in flight at once
  float* const of_warps = reinterpret_cast<float*>(dynamic_shared_memory());
  const int lane = threadIdx.x % kWarp, warp = threadIdx.x / kWarp;
  float* const sums = of_warps + warp * kStatesAtATime * kWarp + lane;
  for (int state = 0; state < kStatesAtATime; ++state) sums[state * kWarp] = 0;

  const int first_state = block.y * kStatesAtATime, column = block.z * kWarp + lane;
  const int queries = shape.sequences * shape.queries;
  for (int first = (block.x * kWarps + warp) * kWarp; first < queries; first += block.width * kThreads) {
    const int own = min(first + lane, queries - 1), sequence = own / shape.queries,
              query = own % shape.queries;
    const int64_t transition = int64_t{sequence} * shape.transitions + shape.first_query() + query;
    const int own_state = first + lane < queries ? state_of(shape, states, transition) - first_state : -1;
    const int own_row = sequence * tokens + shape.context + query;
#pragma unroll 1
    for (int from = 0; from < kWarp; from += kAhead) {
      unsigned state[kAhead];
      float value[kAhead];
#pragma unroll
      for (int k = 0; k < kAhead; ++k) {
        state[k] = __shfl_sync(kAllLanes, own_state, from + k);
        const int64_t row = __shfl_sync(kAllLanes, own_row, from + k);
        value[k] = state[k] < kStatesAtATime ? __bfloat162float(dx[row * shape.width + column]) : 0.0f;
      }
#pragma unroll
      for (int k = 0; k < kAhead; ++k) {
        if (state[k] < kStatesAtATime) sums[state[k] * kWarp] += value[k];
      }
    }
  }

  __syncthreads();
  const int here = min(kStatesAtATime, shape.states() - first_state);
  for (int state = warp; state < here; state += kWarps) {
    float sum = 0;
    for (int other = 0; other < kWarps; ++other) {
      sum += of_warps[(other * kStatesAtATime + state) * kWarp + lane];
    }
    const int64_t row = int64_t{block.x} * shape.states() + first_state + state;
    parts[row * shape.width + column] = sum;
  }
}

/// Thread blocks of both kinds run beside each other, those of states first.
template <int Columns>
__global__ void __launch_bounds__(kThreads, 2)
    gather_kernel(TokenShape shape, int tokens, dim3 states_grid, dim3 features_grid,
                  TransitionArrays transitions, const Bf16* dx, PartialSums parts) {
  follow_kernels_ahead();
  const unsigned of_states = states_grid.x * states_grid.y * states_grid.z;
  if (blockIdx.x < of_states) {
    gather_states({blockIdx.x, states_grid}, shape, tokens, transitions.states, dx, parts.of_states);
  } else {
    gather_features<Columns>({blockIdx.x - of_states, features_grid}, shape, tokens, transitions, dx, parts);
  }
}

/// This warp's share of the sum of one column over `count` partial sums, which are `stride` floats apart.
__device__ float sum_of_parts(const float* parts, int count, int64_t stride) {
  float sum = 0;
#pragma unroll 8
  for (int part = threadIdx.x / kWarp; part < count; part += kSumWarps) sum += __ldg(parts + part * stride);
  return sum;
}

/// A thread block computes 32 columns of one gradient row: of a feature, then of a position, then of a
/// query's state.
__global__ void __launch_bounds__(kSumThreads)
    sum_kernel(TokenShape shape, int tokens, int slices, int warp_tiles, int state_parts, PartialSums parts,
               EmbeddingGradients gradients) {
  __shared__ float of_warps[kSumWarps][kWarp];
  const int lane = threadIdx.x % kWarp, warp = threadIdx.x / kWarp;
  const int column = static_cast<int>(blockIdx.y) * kWarp + lane;
  const int features = shape.features(), feature = static_cast<int>(blockIdx.x);
  const int position = feature - features - kOnes, state = position - shape.transitions;
  follow_kernels_ahead();

  float sum = 0;
  float* gradient;
  if (position < 0) {
    sum = sum_of_parts(parts.of_features + feature * shape.width + column, slices * warp_tiles,
                       int64_t{kFeatureRow} * shape.width);
    gradient = feature < features    ? gradients.context_weight + int64_t{column} * features + feature
               : feature == features ? gradients.context_bias + column
                                     : gradients.type + column;
  } else if (state < 0) {
    const int64_t stride = int64_t{tokens} * shape.width;
    const auto add_token = [&](int token) {
      sum += sum_of_parts(parts.of_tokens + int64_t{token} * shape.width + column, slices, stride);
    };
    if (position < shape.context) add_token(position);
    if (position >= shape.first_query()) add_token(shape.context + position - shape.first_query());
    gradient = gradients.positions + int64_t{position} * shape.width + column;
  } else {
    sum = sum_of_parts(parts.of_states + int64_t{state} * shape.width + column, state_parts,
                       int64_t{shape.states()} * shape.width);
    gradient = gradients.query_states + int64_t{state} * shape.width + column;
  }

  of_warps[warp][lane] = sum;
  __syncthreads();
  if (warp != 0) return;
  for (int other = 1; other < kSumWarps; ++other) sum += of_warps[other][lane];
  *gradient += sum;
}

}  // namespace

int64_t embedding_partial_sums(const TokenShape& shape) {
  const int64_t rows =
      int64_t{slices_of(shape)} * (int64_t{warp_tiles_of(shape)} * kFeatureRow + shape.tokens()) +
      int64_t{state_parts_of(shape)} * shape.states();
  return rows * shape.width;
}

void embed_tokens_backward(const TokenShape& shape, const TransitionArrays& transitions,
                           const __nv_bfloat16* dx, float* partial_sums, const EmbeddingGradients& gradients,
                           cudaStream_t stream) {
  const PartialSums parts = partial_sums_in(partial_sums, shape);
  const auto columns = static_cast<unsigned>(shape.width / kWarp);
  const dim3 states_grid(static_cast<unsigned>(state_parts_of(shape)),
                         static_cast<unsigned>(gpu::divided_up(shape.states(), kStatesAtATime)), columns);
  const auto launch = [&](auto kernel, const dim3& grid, int columns_at_once) {
    const int of_states = kWarps * kStatesAtATime * kWarp, of_features = kWarps * kWarpTile * columns_at_once;
    launch_early("gather_kernel", kernel,
                 states_grid.x * states_grid.y * states_grid.z + grid.x * grid.y * grid.z, kThreads,
                 std::max(of_states, of_features) * static_cast<int>(sizeof(float)), stream, shape,
                 shape.tokens(), states_grid, grid, transitions, dx, parts);
  };
  if (shape.width % 64 == 0) {
    launch(gather_kernel<64>, grid_of<64>(shape), 64);
  } else {
    launch(gather_kernel<32>, grid_of<32>(shape), 32);
  }
  const auto outputs = static_cast<unsigned>(shape.features() + kOnes + shape.transitions + shape.states());
  launch_early("sum_kernel", sum_kernel, dim3(outputs, columns), kSumThreads, 0, stream, shape,
               shape.tokens(), slices_of(shape), warp_tiles_of(shape), state_parts_of(shape), parts,
               gradients);
}

}  // namespace adtrain::kernels
