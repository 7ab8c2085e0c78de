#include <algorithm>

#include "base/Launch.cuh"
#include "model/kernels/fused/Instructions.cuh"
#include "model/kernels/fused/RowProducts.cuh"
#include "model/kernels/fused/TokenEmbedding.h"

/// A warp works on a strip of 16 neighbouring tokens, sequence after sequence, so that positions stay.
/// Features of a transition are a row of 16, and both directions are products on the tensor cores:
///
///     forward: x = position + features · weights       backward: dweights = featuresᵀ · dx, dposition = Σ dx
///
/// Bias and type embedding are weights of two more features, which are always 1. Queries have no features.
namespace adtrain::kernels {
namespace {

constexpr int kWarps = 8, kThreads = kWarps * kWarp;
constexpr int kSequencesAWarp = 4;  ///< about: enough warps to hide loads, few enough partial sums
constexpr int kFeatureRow = 16;
constexpr int kOnes = 2;  ///< features that are always 1
static_assert(TokenShape::kMostActions + 5 + kOnes <= kFeatureRow);

constexpr int kSumWarps = 16, kSumThreads = kSumWarps * kWarp;  ///< of the kernel that adds up partial sums
constexpr int kMostStateParts = 128;         ///< so that there are parts for all multiprocessors
constexpr int64_t kMostStateSums = 1 << 22;  ///< of all parts, unless one part alone has more
constexpr int kStatesAtATime =
    96;  ///< in shared memory: a grid of 9 × 9, so that two thread blocks have room

__host__ __device__ int64_t divided_up(int64_t count, int64_t by) {
  return (count + by - 1) / by;
}

/// Strips of all tokens of a sequence, and slices of all sequences; a thread block works on one of each.
int strips_of(const TokenShape& shape) {
  return static_cast<int>(divided_up(shape.tokens(), kStrip));
}
int slices_of(const TokenShape& shape) {
  return static_cast<int>(divided_up(shape.sequences, kWarps * kSequencesAWarp));
}
/// Parts of all queries; a thread block works on one of them.
int state_parts_of(const TokenShape& shape) {
  const int64_t parts = divided_up(int64_t{shape.sequences} * shape.queries, kThreads);
  const int64_t affordable = std::max<int64_t>(kMostStateSums / (shape.states() * shape.width), 1);
  return static_cast<int>(std::min({parts, affordable, int64_t{kMostStateParts}}));
}

/// One feature of transitions: one that embed_context reads, behind them the two ones, then zeros.
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

  /// Of a transition of the batch. Without branches, as the lanes of a warp have different features.
  __device__ float of(int64_t transition) const {
    const int32_t word = __ldg(words_ + stride_ * transition);
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

/// Its weight for one column of x.
__device__ Bf16 weight_of(const TokenShape& shape, const EmbeddingWeights& weights, int feature, int column) {
  const int features = shape.features();
  if (feature < features) return weights.context_weight[int64_t{column} * features + feature];
  if (feature == features) return weights.context_bias[column];
  return feature == features + 1 ? weights.type[column] : Bf16{};
}

__device__ uint32_t pair_of(Bf16 first, Bf16 second) {
  return __bfloat16_as_ushort(first) | uint32_t{__bfloat16_as_ushort(second)} << 16;
}

__device__ int state_of(const TokenShape& shape, const int32_t* states, int64_t transition) {
  return __ldg(states + 2 * transition) * shape.grid_size + __ldg(states + 2 * transition + 1);
}

/// The grid: slices, strips, columns. Lane (row, quad) makes chunks of tokens `row` and `row` + 8 and sees
/// their features 4 · quad … 4 · quad + 3.
template <int Columns>
__global__ void __launch_bounds__(kThreads, 2)
    embed_kernel(TokenShape shape, int tokens, TransitionArrays transitions, EmbeddingWeights weights,
                 Bf16* x) {
  const auto [row, quad] = quad_place();
  const int first_column = static_cast<int>(blockIdx.z) * Columns;
  const int token_of[2] = {static_cast<int>(blockIdx.y) * kStrip + row,
                           static_cast<int>(blockIdx.y) * kStrip + row + 8};

  const Feature features[4] = {{shape, transitions, 4 * quad},
                               {shape, transitions, 4 * quad + 1},
                               {shape, transitions, 4 * quad + 2},
                               {shape, transitions, 4 * quad + 3}};
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
    const int64_t first_transition = int64_t{sequence} * shape.transitions;
    float seen[2][4];
#pragma unroll
    for (int half = 0; half < 2; ++half) {
#pragma unroll
      for (int k = 0; k < 4; ++k) {
        const int token = token_of[half];
        seen[half][k] = token < shape.context ? features[k].of(first_transition + token) : 0.0f;
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
      const int token = token_of[half], query = token - shape.context;
      if (token >= tokens) continue;
      int position = token;
      if (query >= 0) {
        position = shape.first_query() + query;
        const int state = state_of(shape, transitions.states, first_transition + position);
        add_chunks<Columns>(sums, half, weights.query_states + int64_t{state} * shape.width + first_column);
      }
      add_chunks<Columns>(sums, half, weights.positions + int64_t{position} * shape.width + first_column);
      const int64_t row_of_x = int64_t{sequence} * tokens + token;
      store_chunks<Columns>(sums, half, 1.0f, x + row_of_x * shape.width + first_column);
    }
  }
}

/// What the thread blocks of gather_kernel and state_kernel sum, each for itself, fp32.
struct PartialSums {
  float* of_features;  ///< (slices · strips, 16, D)
  float* of_tokens;    ///< (slices, T, D)
  float* of_states;    ///< (parts of the queries, states, D)
};

PartialSums partial_sums_in(float* memory, const TokenShape& shape) {
  float* const of_tokens = memory + int64_t{slices_of(shape)} * strips_of(shape) * kFeatureRow * shape.width;
  return {memory, of_tokens, of_tokens + int64_t{slices_of(shape)} * shape.tokens() * shape.width};
}

/// Adds up what each warp left, 16 rows of Columns, into the first `rows` rows of `to` (rows, width).
template <int Columns>
__device__ void store_sum_of_warps(const float (&of_warps)[kWarps][kStrip * Columns], float* to, int width,
                                   int rows) {
  for (int place = 4 * threadIdx.x; place < kStrip * Columns; place += 4 * kThreads) {
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

/// The grid as of embed_kernel. Lane (row, quad) sees tokens 4 · quad … 4 · quad + 3, of these features `row`
/// and `row` + 8, and Columns / 8 columns of dx.
template <int Columns>
__global__ void __launch_bounds__(kThreads, 2)
    gather_kernel(TokenShape shape, int tokens, TransitionArrays transitions, const Bf16* dx,
                  PartialSums parts) {
  __shared__ __align__(16) float of_warps[kWarps][kStrip * Columns];
  const auto [row, quad] = quad_place();
  const int warp = threadIdx.x / kWarp, first_column = static_cast<int>(blockIdx.z) * Columns;
  const int strip = static_cast<int>(blockIdx.y), first_token = strip * kStrip + 4 * quad;
  const Feature low(shape, transitions, row), high(shape, transitions, row + 8);

  Sums of_features[kTiles<Columns>];
  float of_tokens[4][kTiles<Columns>] = {};
#pragma unroll
  for (int tile = 0; tile < kTiles<Columns>; ++tile) of_features[tile] = no_sums();

  const int first_sequence = static_cast<int>(blockIdx.x) * kWarps + warp;
  for (int sequence = first_sequence; sequence < shape.sequences; sequence += gridDim.x * kWarps) {
    FourRows<Columns> rows;
    float seen_low[4], seen_high[4];
#pragma unroll
    for (int k = 0; k < 4; ++k) {
      const int token = first_token + k;
      const int64_t row_of_x = int64_t{sequence} * tokens + token;
      rows.load(k, token < tokens ? dx + row_of_x * shape.width + first_column : nullptr);
      const int64_t transition = int64_t{sequence} * shape.transitions + token;
      seen_low[k] = token < shape.context ? low.of(transition) : 0.0f;
      seen_high[k] = token < shape.context ? high.of(transition) : 0.0f;
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
  const int64_t part = int64_t{blockIdx.x} * gridDim.y + strip;
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
  const int64_t token_of_slice = int64_t{blockIdx.x} * tokens + strip * kStrip;
  store_sum_of_warps<Columns>(of_warps, parts.of_tokens + token_of_slice * shape.width + first_column,
                              shape.width, min(kStrip, tokens - strip * kStrip));
}

/// The grid: parts of the queries, states, 32 columns. A warp takes its queries one after the other and adds
/// each one's row of dx, a column a lane, to its state's in shared memory: (warps, states at a time, 32)
/// fp32.
__global__ void __launch_bounds__(kThreads)
    state_kernel(TokenShape shape, int tokens, const int32_t* states, const Bf16* dx, float* parts) {
  constexpr int kAhead = 8;  // loads under way at once
  float* const of_warps = reinterpret_cast<float*>(dynamic_shared_memory());
  const int lane = threadIdx.x % kWarp, warp = threadIdx.x / kWarp;
  float* const sums = of_warps + warp * kStatesAtATime * kWarp + lane;
  for (int state = 0; state < kStatesAtATime; ++state) sums[state * kWarp] = 0;

  const int first_state = static_cast<int>(blockIdx.y) * kStatesAtATime;
  const int column = static_cast<int>(blockIdx.z) * kWarp + lane;
  const int queries = shape.sequences * shape.queries;
  for (int first = (static_cast<int>(blockIdx.x) * kWarps + warp) * kWarp; first < queries;
       first += gridDim.x * kThreads) {
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
    const int64_t row = int64_t{blockIdx.x} * shape.states() + first_state + state;
    parts[row * shape.width + column] = sum;
  }
}

/// One column of partial sums, of which there are `count`, `stride` floats apart: the share of this warp.
__device__ float sum_of_parts(const float* parts, int count, int64_t stride) {
  float sum = 0;
#pragma unroll 8
  for (int part = threadIdx.x / kWarp; part < count; part += kSumWarps) sum += __ldg(parts + part * stride);
  return sum;
}

/// A thread block a feature, then a position, then a query's state, in 32 columns of x.
__global__ void __launch_bounds__(kSumThreads)
    sum_kernel(TokenShape shape, int tokens, int slices, int strips, int state_parts, PartialSums parts,
               EmbeddingGradients gradients) {
  __shared__ float of_warps[kSumWarps][kWarp];
  const int lane = threadIdx.x % kWarp, warp = threadIdx.x / kWarp;
  const int column = static_cast<int>(blockIdx.y) * kWarp + lane;
  const int features = shape.features(), feature = static_cast<int>(blockIdx.x);
  const int position = feature - features - kOnes, state = position - shape.transitions;

  float sum = 0;
  float* gradient;
  if (position < 0) {
    sum = sum_of_parts(parts.of_features + feature * shape.width + column, slices * strips,
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

template <int Columns>
dim3 grid_of(const TokenShape& shape) {
  return {static_cast<unsigned>(slices_of(shape)), static_cast<unsigned>(strips_of(shape)),
          static_cast<unsigned>(shape.width / Columns)};
}

}  // namespace

void embed_tokens(const TokenShape& shape, const TransitionArrays& transitions,
                  const EmbeddingWeights& weights, __nv_bfloat16* x, cudaStream_t stream) {
  const auto launch = [&](auto kernel, const dim3& grid) {
    gpu::launch("embed_kernel", kernel, grid, kThreads, 0, stream, shape, shape.tokens(), transitions,
                weights, x);
  };
  if (shape.width % 64 == 0) {
    launch(embed_kernel<64>, grid_of<64>(shape));
  } else {
    launch(embed_kernel<32>, grid_of<32>(shape));
  }
}

int64_t embedding_partial_sums(const TokenShape& shape) {
  const int64_t rows =
      int64_t{slices_of(shape)} * (int64_t{strips_of(shape)} * kFeatureRow + shape.tokens()) +
      int64_t{state_parts_of(shape)} * shape.states();
  return rows * shape.width;
}

void embed_tokens_backward(const TokenShape& shape, const TransitionArrays& transitions,
                           const __nv_bfloat16* dx, float* partial_sums, const EmbeddingGradients& gradients,
                           cudaStream_t stream) {
  const PartialSums parts = partial_sums_in(partial_sums, shape);
  const auto launch = [&](auto kernel, const dim3& grid) {
    gpu::launch("gather_kernel", kernel, grid, kThreads, 0, stream, shape, shape.tokens(), transitions, dx,
                parts);
  };
  if (shape.width % 64 == 0) {
    launch(gather_kernel<64>, grid_of<64>(shape));
  } else {
    launch(gather_kernel<32>, grid_of<32>(shape));
  }
  const auto states = static_cast<unsigned>(divided_up(shape.states(), kStatesAtATime));
  const auto columns = static_cast<unsigned>(shape.width / kWarp);
  constexpr int kSums = kWarps * kStatesAtATime * kWarp * static_cast<int>(sizeof(float));
  gpu::launch("state_kernel", state_kernel,
              dim3(static_cast<unsigned>(state_parts_of(shape)), states, columns), kThreads, kSums, stream,
              shape, shape.tokens(), transitions.states, dx, parts.of_states);
  const auto outputs = static_cast<unsigned>(shape.features() + kOnes + shape.transitions + shape.states());
  gpu::launch("sum_kernel", sum_kernel, dim3(outputs, columns), kSumThreads, 0, stream, shape, shape.tokens(),
              slices_of(shape), strips_of(shape), state_parts_of(shape), parts, gradients);
}

}  // namespace adtrain::kernels
