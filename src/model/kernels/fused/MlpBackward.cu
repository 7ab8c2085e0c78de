#include <algorithm>

#include "base/Launch.cuh"
#include "model/kernels/fused/Instructions.cuh"
#include "model/kernels/fused/MlpBackward.h"
#include "model/kernels/fused/Tile.cuh"

/// The backward pass of y = norm2(x1 + drop(linear2(drop(gelu(linear1(x1)))))), a row:
///
///     du2 = inverse2 (g − mean(g) − normed2 · mean(g · normed2)),  g = dy · norm2_weight
///     df = drop'(du2),  h = linear1(x1),  a = drop(gelu(h)),  da = df · linear2_weight
///     dh = drop'(da) · gelu'(h),  dx1 = du2 + dh · linear1_weight
///
/// and, over all rows, dlinear1_weight = dhᵀ x1, dlinear2_weight = dfᵀ a and the sums for the vectors.
///
/// The hidden layer lies transposed: a warp has 32 hidden units for the whole kernel, its products have
/// hidden units as rows and rows of the batch as columns. So what a warp makes of a and dh is, as it stands
/// in registers, the left operand of the sums for the weights, which stay in registers until the last row:
/// (32, D) of each matrix. Only dx1 sums over all hidden units; for it dh goes through shared memory.
///
/// A block takes tiles of 64 rows through three stages, norm, hidden and input, one a step. In a step the
/// stages work on three tiles, so that they need nothing of each other and one barrier a step is enough;
/// between two of them the warps drift apart, one on the tensor cores while another one does arithmetic.
namespace adtrain::kernels {
namespace {

constexpr int kTileRows = 64;
constexpr int kUnits = 32;  ///< hidden units of a warp: a word of keep bits
constexpr int kUnitStrips = kUnits / kStrip;
constexpr int kHeldRows = 32;   ///< rows whose hidden units a warp holds at once
constexpr int kChunk = 8;       ///< columns in 16 bytes
constexpr int kThreadRows = 2;  ///< neighbouring rows of a tile of which a thread has a chunk, stage norm
constexpr int kKeepStride = kTileRows + 4;  ///< so that words of 4 rows and 8 warps lie in 32 banks

constexpr uint32_t kOne = 0x3f80;  ///< 1 in 16 bit

/// What a block has in shared memory. Tile t is in the stage norm at step t, hidden at t + 1, input at t + 2.
template <int Width>
struct Memory {
  static constexpr int kInner = 4 * Width;
  static constexpr int kWarps = kInner / kUnits;
  static constexpr int kThreads = kWarps * kWarp;
  using Rows = Bf16[kTileRows * Width];
  using RowChunks = uint4[kThreadRows][kThreads];

  // bytes at D = 64
  Bf16 linear1[kInner * Width];    // 32 K  Tile<D>, (F, D): all the time
  Bf16 linear2[Width * kInner];    // 32 K  Tile<F>, (D, F): all the time
  Rows x1[2];                      // 16 K  Tile<D>: norm -> hidden
  Rows df[2];                      // 16 K  Tile<D>: norm -> hidden
  Rows du2[3];                     // 24 K  Tile<D>: norm -> input
  Bf16 dh[2][kInner * kTileRows];  // 64 K  Tile<64>, (F, rows), transposed: hidden -> input
  /// The next tile's rows on their way from global memory (24 K + 4 K), each element for the thread that has
  /// copied it: from the end of the stage norm of a tile to its beginning of the next tile.
  RowChunks dy, normed2, normed1;
  float inverse2[kThreadRows][kThreads];
  uint32_t output_keep[kThreadRows][kThreads];
  /// [word][row], 6.4 K: from one step before the stage norm to the stage hidden.
  uint32_t inner_keep[3][kInner / 32][kKeepStride];
  /// Each thread's sums over rows for norm2's weight and bias and for linear2's bias, 6 K, see
  /// add_over_rows(): all the time, as the stage hidden has no registers to spare.
  float4 norm2_sums[kThreads];
  float2 linear2_bias_sums[kThreads];
  Bf16 norm1_weight[Width], norm1_bias[Width], norm2_weight[Width],
      linear1_bias[kInner];  // 1 K: all the time
};

struct Arguments {
  BlockWeights weights;
  const uint32_t *inner_keep, *output_keep;
  float scale;  ///< of what dropout keeps, 1 without
  const Bf16 *dy, *normed1, *normed2;
  const float* inverse2;
  int64_t rows;
  Bf16* dx1;
  float* parts;
};

/// How many rows of a tile there are from `first` on.
__device__ inline int rows_from(const Arguments& arguments, int64_t first) {
  return static_cast<int>(min(arguments.rows - first, int64_t{kTileRows}));
}

/// A warp's sums over the block's rows.
template <int Width>
struct WeightSums {
  Sums linear1[kUnitStrips][Width / 8];  ///< dhᵀ x1: (32 hidden units, D)
  Sums linear2[kUnitStrips][Width / 8];  ///< aᵀ df: (32 hidden units, D), the transpose of the gradient
  Sums linear1_bias;                     ///< even columns: the first 16 hidden units; odd ones: the others
};

template <int Width>
__device__ void clear(WeightSums<Width>& sums) {
#pragma unroll
  for (int strip = 0; strip < kUnitStrips; ++strip) {
#pragma unroll
    for (int n = 0; n < Width / 8; ++n) sums.linear1[strip][n] = sums.linear2[strip][n] = no_sums();
  }
  sums.linear1_bias = no_sums();
}

__device__ inline int warp_number() {
  return threadIdx.x / kWarp;
}
__device__ inline int lane_number() {
  return threadIdx.x % kWarp;
}

// The first stage: the norm's backward pass.

/// What a thread has of a tile in the first stage: a chunk of columns of two neighbouring rows. Four lanes in
/// a row have the same chunk and 8 rows, as in the right operand of a product.
struct ThreadPlace {
  int row, column;
};
template <int Width>
__device__ ThreadPlace thread_place() {
  constexpr int kChunks = Width / kChunk, kWarpRows = kTileRows / Memory<Width>::kWarps;
  const LanePlace lane = lane_place();
  return {kWarpRows * warp_number() + 8 * (lane.row / kChunks) + lane.column, kChunk * (lane.row % kChunks)};
}

/// Starts to copy the rows of a tile from `first` on. Rows beyond the last one are zeros, which add nothing
/// to any sum.
template <int Width, bool kDropout>
__device__ void fetch(Memory<Width>& memory, const Arguments& arguments, int64_t first,
                      uint32_t (*inner_keep)[kKeepStride]) {
  const unsigned thread = threadIdx.x;
  const unsigned rows = rows_from(arguments, first);
  const ThreadPlace place = thread_place<Width>();
  const Bf16 *dy = arguments.dy + first * Width, *normed2 = arguments.normed2 + first * Width,
             *normed1 = arguments.normed1 + first * Width;
#pragma unroll
  for (int i = 0; i < kThreadRows; ++i) {
    const unsigned row = place.row + i, element = row * Width + place.column;
    if (row < rows) {
      start_copy(reinterpret_cast<Bf16*>(&memory.dy[i][thread]), dy + element);
      start_copy(reinterpret_cast<Bf16*>(&memory.normed2[i][thread]), normed2 + element);
      start_copy(reinterpret_cast<Bf16*>(&memory.normed1[i][thread]), normed1 + element);
      start_copy_word(&memory.inverse2[i][thread], arguments.inverse2 + first + row);
      if (kDropout) {
        start_copy_word(&memory.output_keep[i][thread],
                        arguments.output_keep + first * (Width / 32) + element / 32);
      }
    } else {
      memory.dy[i][thread] = memory.normed2[i][thread] = memory.normed1[i][thread] = uint4{};
      memory.inverse2[i][thread] = 0.0f;
    }
  }
  if (!kDropout) return;
  constexpr int kWords = Memory<Width>::kInner / 32;
  const uint32_t* words = arguments.inner_keep + first * kWords;
  uint32_t* to = &inner_keep[thread % kWords][thread / kWords];
#pragma unroll
  for (unsigned i = 0; i < kTileRows * kWords; i += Memory<Width>::kThreads) {
    if (thread + i < rows * kWords) start_copy_word(to + i / kWords, words + thread + i);
  }
}

/// Eight neighbouring columns.
struct Chunk {
  uint32_t pair[4];
};
__device__ inline Chunk chunk_of(const uint4& bits) {
  return {{bits.x, bits.y, bits.z, bits.w}};
}
__device__ inline uint4 bits_of(const Chunk& chunk) {
  return {chunk.pair[0], chunk.pair[1], chunk.pair[2], chunk.pair[3]};
}
__device__ inline Chunk load_chunk(const Bf16* from) {
  return chunk_of(*reinterpret_cast<const uint4*>(from));
}
__device__ inline void store_chunk(Bf16* to, const Chunk& chunk) {
  *reinterpret_cast<uint4*>(to) = bits_of(chunk);
}

/// Over the lanes that have chunks of the same row.
template <int Width>
__device__ float row_sum(float value) {
#pragma unroll
  for (int apart = 4; apart < Width / 2; apart *= 2) value += __shfl_xor_sync(kAllLanes, value, apart);
  return value;
}

/// Adds the chunks of the warp's rows. The product's right operand is the chunks' pairs of columns, which lie
/// as (rows, chunks); its left one picks the even and the odd columns out of the pairs, for the sums' rows 0
/// … 7
/// (`second` false) or 8 … 15: row c or 8 + c of `sums`, column n, is column c of chunk n.
__device__ inline void add_over_rows(Sums& sums, bool second, const Chunk (&chunks)[kThreadRows]) {
  const int lane = lane_number();
  const uint32_t odd_or_even = lane / 4 % 2 == 1 ? kOne << 16 : kOne;
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    const uint32_t pick = lane / 8 == i ? odd_or_even : 0;
    const LeftFragment picks = second ? LeftFragment{{0, pick, 0, pick}} : LeftFragment{{pick, 0, pick, 0}};
    multiply_add(sums, picks, chunks[0].pair[i], chunks[1].pair[i]);
  }
}

/// Where bit c of `keep` is set, column c of the chunk, else 0.
__device__ inline float kept(uint32_t keep, int column, float value) {
  return (keep >> column & 1) != 0 ? value : 0.0f;
}

/// dy, normed1 and normed2 of a tile, which have arrived -> x1, df and du2.
template <int Width, bool kDropout>
__device__ void norm_stage(Memory<Width>& memory, float scale, Tile<Width> x1, Tile<Width> df,
                           Tile<Width> du2) {
  const int thread = threadIdx.x;
  const ThreadPlace place = thread_place<Width>();
  const Chunk norm2_weight = load_chunk(memory.norm2_weight + place.column);
  const Chunk norm1_weight = load_chunk(memory.norm1_weight + place.column);
  const Chunk norm1_bias = load_chunk(memory.norm1_bias + place.column);

  Chunk dy[kThreadRows], dy_normed2[kThreadRows], dropped[kThreadRows];
#pragma unroll
  for (int i = 0; i < kThreadRows; ++i) {
    const int row = place.row + i;
    dy[i] = chunk_of(memory.dy[i][thread]);
    const Chunk normed2 = chunk_of(memory.normed2[i][thread]);
    const Chunk normed1 = chunk_of(memory.normed1[i][thread]);
    const float inverse2 = memory.inverse2[i][thread];

    float2 g[4], normed[4];
    float g_sum = 0.0f, g_normed_sum = 0.0f;
    Chunk x1_chunk;
#pragma unroll
    for (int pair = 0; pair < 4; ++pair) {
      const float2 dy_pair = unpacked(dy[i].pair[pair]), weight = unpacked(norm2_weight.pair[pair]);
      normed[pair] = unpacked(normed2.pair[pair]);
      g[pair] = {dy_pair.x * weight.x, dy_pair.y * weight.y};
      g_sum += g[pair].x + g[pair].y;
      g_normed_sum = fmaf(g[pair].x, normed[pair].x, fmaf(g[pair].y, normed[pair].y, g_normed_sum));
      dy_normed2[i].pair[pair] = multiplied(dy[i].pair[pair], normed2.pair[pair]);
      x1_chunk.pair[pair] =
          multiplied_plus(normed1.pair[pair], norm1_weight.pair[pair], norm1_bias.pair[pair]);
    }
    store_chunk(x1.at(row, place.column), x1_chunk);

    const float shift = row_sum<Width>(g_sum) * (-1.0f / Width) * inverse2;
    const float slope = row_sum<Width>(g_normed_sum) * (-1.0f / Width) * inverse2;
    const uint32_t keep = kDropout ? memory.output_keep[i][thread] >> place.column % 32 : 0;
    Chunk du2_chunk;
#pragma unroll
    for (int pair = 0; pair < 4; ++pair) {
      const float2 du = {fmaf(g[pair].x, inverse2, fmaf(normed[pair].x, slope, shift)),
                         fmaf(g[pair].y, inverse2, fmaf(normed[pair].y, slope, shift))};
      du2_chunk.pair[pair] = packed(du.x, du.y);
      dropped[i].pair[pair] =
          kDropout ? packed(kept(keep, 2 * pair, du.x * scale), kept(keep, 2 * pair + 1, du.y * scale))
                   : du2_chunk.pair[pair];
    }
    store_chunk(du2.at(row, place.column), du2_chunk);
    store_chunk(df.at(row, place.column), dropped[i]);
  }
  float4& norm2_sums = memory.norm2_sums[thread];
  Sums norm2 = {{norm2_sums.x, norm2_sums.y, norm2_sums.z, norm2_sums.w}};
  add_over_rows(norm2, false, dy_normed2);
  add_over_rows(norm2, true, dy);
  norm2_sums = {norm2.value[0], norm2.value[1], norm2.value[2], norm2.value[3]};
  float2& linear2_bias_sums = memory.linear2_bias_sums[thread];
  Sums linear2_bias = {{linear2_bias_sums.x, linear2_bias_sums.y, 0.0f, 0.0f}};
  add_over_rows(linear2_bias, false, dropped);
  linear2_bias_sums = {linear2_bias.value[0], linear2_bias.value[1]};
}

// The second stage: the hidden layer's values and their gradients, and the sums for the weights.

struct Activation {
  float value, slope;
};

/// gelu and its derivative at h, times `scale`: gelu(h) = h Φ(h) with Φ(h) = (1 + tanh u) / 2,
/// u = √(2/π) (h + 0.044715 h³), and Φ' = Φ (1 − tanh u) u'.
__device__ inline Activation gelu(float h, float scale) {
  constexpr float kLinear = 0.7978845608f, kCubic = kLinear * 0.044715f;
  const float square = h * h;
  const float tangent = tanh_of(h * fmaf(kCubic, square, kLinear));
  const float phi = fmaf(tangent, 0.5f * scale, 0.5f * scale);
  const float value = h * phi;
  const float u_slope = fmaf(3.0f * kCubic, square, kLinear);
  return {value, fmaf(value, fmaf(-u_slope, tangent, u_slope), phi)};
}

/// The hidden units' values of 16 rows, ready to be multiplied with the rows.
struct HiddenStrips {
  LeftFragment a[kUnitStrips], dh[kUnitStrips];
};

/// h and da of a warp's hidden units and 16 rows -> a and dh. `keep`: the words of the first row.
template <bool kDropout>
__device__ HiddenStrips activate(const Sums (&h)[kUnitStrips][2], const Sums (&da)[kUnitStrips][2],
                                 const uint32_t* keep, float scale) {
  const LanePlace lane = lane_place();
  HiddenStrips result;
#pragma unroll
  for (int n = 0; n < 2; ++n) {
    uint2 words = {};
    if (kDropout) {  // The bits of the lane's four hidden units become the highest of the four bytes.
      words = *reinterpret_cast<const uint2*>(keep + 8 * n + lane.column);
      words = {words.x << (7 - lane.row), words.y << (7 - lane.row)};
    }
#pragma unroll
    for (int strip = 0; strip < kUnitStrips; ++strip) {
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        const Activation first = gelu(h[strip][n].value[2 * half], scale);
        const Activation second = gelu(h[strip][n].value[2 * half + 1], scale);
        uint32_t& a = result.a[strip].part[2 * n + half];
        uint32_t& dh = result.dh[strip].part[2 * n + half];
        a = packed(first.value, second.value);
        dh = packed(da[strip][n].value[2 * half] * first.slope,
                    da[strip][n].value[2 * half + 1] * second.slope);
        if (kDropout) {
          const uint32_t mask = pair_mask(words.x, words.y, 2 * strip + half);
          a &= mask;
          dh &= mask;
        }
      }
    }
  }
  return result;
}

/// Adds the products of the tiles' first 16 rows.
template <int Width>
__device__ void add_weight_gradients(WeightSums<Width>& sums, const HiddenStrips& hidden, Tile<Width> x1,
                                     Tile<Width> df) {
#pragma unroll
  for (int n = 0; n < Width / 8; n += 2) {
    const RightFragments x1_rows = right_of(x1, 0, 8 * n), df_rows = right_of(df, 0, 8 * n);
#pragma unroll
    for (int strip = 0; strip < kUnitStrips; ++strip) {
      multiply_add(sums.linear1[strip][n], sums.linear1[strip][n + 1], hidden.dh[strip], x1_rows);
      multiply_add(sums.linear2[strip][n], sums.linear2[strip][n + 1], hidden.a[strip], df_rows);
    }
  }
#pragma unroll
  for (int strip = 0; strip < kUnitStrips; ++strip) {
    const uint32_t ones = lane_place().row % 2 == strip ? kOne << 16 | kOne : 0;
    multiply_add(sums.linear1_bias, hidden.dh[strip], ones, ones);
  }
}

/// x1 and df of a tile -> dh, transposed, and the sums. `keep` (64 rows): the warp's words.
template <int Width, bool kDropout>
__device__ void hidden_stage(const Memory<Width>& memory, Tile<Width> linear1, Tile<4 * Width> linear2,
                             Tile<Width> x1, Tile<Width> df, const uint32_t* keep, float scale,
                             Tile<kTileRows> dh, WeightSums<Width>& sums) {
  const LanePlace lane = lane_place();
  const int unit = kUnits * warp_number();
  constexpr int kPairs = kHeldRows / kStrip;
#pragma unroll 1
  for (int row = 0; row < kTileRows; row += kHeldRows) {
    Sums h[kPairs][kUnitStrips][2], gradient[kPairs][kUnitStrips][2];
#pragma unroll
    for (int strip = 0; strip < kUnitStrips; ++strip) {
      const Bf16* bias = memory.linear1_bias + unit + kStrip * strip + lane.row;
      const float first = __bfloat162float(bias[0]), second = __bfloat162float(bias[8]);
#pragma unroll
      for (int pair = 0; pair < kPairs; ++pair) {
        h[pair][strip][0] = h[pair][strip][1] = {{first, first, second, second}};
        gradient[pair][strip][0] = gradient[pair][strip][1] = no_sums();
      }
    }
#pragma unroll
    for (int column = 0; column < Width; column += kStrip) {
      LeftFragment weights[kUnitStrips];
#pragma unroll
      for (int strip = 0; strip < kUnitStrips; ++strip) {
        weights[strip] = left_of(from_row(linear1, unit + kStrip * strip), 0, column);
      }
#pragma unroll
      for (int pair = 0; pair < kPairs; ++pair) {
        const RightFragments rows = right_of_transposed(from_row(x1, row + kStrip * pair), 0, column);
#pragma unroll
        for (int strip = 0; strip < kUnitStrips; ++strip) {
          multiply_add(h[pair][strip][0], h[pair][strip][1], weights[strip], rows);
        }
      }
    }
#pragma unroll
    for (int column = 0; column < Width; column += kStrip) {
      LeftFragment weights[kUnitStrips];
#pragma unroll
      for (int strip = 0; strip < kUnitStrips; ++strip) {
        weights[strip] = left_of_transposed(from_row(linear2, column), 0, unit + kStrip * strip);
      }
#pragma unroll
      for (int pair = 0; pair < kPairs; ++pair) {
        const RightFragments rows = right_of_transposed(from_row(df, row + kStrip * pair), 0, column);
#pragma unroll
        for (int strip = 0; strip < kUnitStrips; ++strip) {
          multiply_add(gradient[pair][strip][0], gradient[pair][strip][1], weights[strip], rows);
        }
      }
    }
    // All of dh is stored behind the last product, so that no store is in the way of the loads for one.
    LeftFragment to_store[kPairs][kUnitStrips];
#pragma unroll
    for (int pair = 0; pair < kPairs; ++pair) {
      const int first = row + kStrip * pair;
      const HiddenStrips hidden = activate<kDropout>(h[pair], gradient[pair], keep + first, scale);
      add_weight_gradients(sums, hidden, from_row(x1, first), from_row(df, first));
#pragma unroll
      for (int strip = 0; strip < kUnitStrips; ++strip) to_store[pair][strip] = hidden.dh[strip];
    }
#pragma unroll
    for (int pair = 0; pair < kPairs; ++pair) {
#pragma unroll
      for (int strip = 0; strip < kUnitStrips; ++strip) {
        set_left(from_row(dh, unit + kStrip * strip), 0, row + kStrip * pair, to_store[pair][strip]);
      }
    }
  }
}

// The third stage: dx1.

/// dh and du2 of a tile -> `dx1`, of which `rows` are there. A warp has 32 rows and 16 columns.
template <int Width>
__device__ void input_stage(Tile<Width> linear1, Tile<kTileRows> dh, Tile<Width> du2, Bf16* dx1, int rows) {
  constexpr int kStrips = 2, kColumnGroups = Width / kStrip;
  const LanePlace lane = lane_place();
  const int row = kStrips * kStrip * (warp_number() / kColumnGroups);
  const int column = kStrip * (warp_number() % kColumnGroups);
  Sums sums[kStrips][2];
#pragma unroll
  for (int strip = 0; strip < kStrips; ++strip) {
#pragma unroll
    for (int n = 0; n < 2; ++n) {
      const Tile<Width> residual = from_row(du2, row + kStrip * strip);
      const float2 upper = unpacked(residual.pair(lane.row, column + 8 * n + lane.column));
      const float2 lower = unpacked(from_row(residual, 8).pair(lane.row, column + 8 * n + lane.column));
      sums[strip][n] = {{upper.x, upper.y, lower.x, lower.y}};
    }
  }
#pragma unroll
  for (int unit = 0; unit < 4 * Width; unit += kStrip) {
    const RightFragments weights = right_of(from_row(linear1, unit), 0, column);
#pragma unroll
    for (int strip = 0; strip < kStrips; ++strip) {
      const LeftFragment units = left_of_transposed(from_row(dh, unit), 0, row + kStrip * strip);
      multiply_add(sums[strip][0], sums[strip][1], units, weights);
    }
  }
  Bf16* first = dx1 + (row + lane.row) * Width + column + lane.column;
#pragma unroll
  for (int strip = 0; strip < kStrips; ++strip) {
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const int below = kStrip * strip + 8 * half;
#pragma unroll
      for (int n = 0; n < 2; ++n) {
        const Sums& sum = sums[strip][n];
        store_if(row + lane.row + below < rows, first + below * Width + 8 * n,
                 packed(sum.value[2 * half], sum.value[2 * half + 1]));
      }
    }
  }
}

/// A warp's sums of the matrices and of linear1's bias -> the block's part.
template <int Width>
__device__ void store_hidden_sums(const WeightSums<Width>& sums, float* part) {
  constexpr MlpGradients kGradients = MlpGradients::of(Width);
  constexpr int kInner = 4 * Width;
  const LanePlace lane = lane_place();
#pragma unroll
  for (int strip = 0; strip < kUnitStrips; ++strip) {
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const int unit = kUnits * warp_number() + kStrip * strip + 8 * half + lane.row;
#pragma unroll
      for (int n = 0; n < Width / 8; ++n) {
        const int column = 8 * n + lane.column;
        const Sums &first = sums.linear1[strip][n], &second = sums.linear2[strip][n];
        *reinterpret_cast<float2*>(part + kGradients.linear1_weight + unit * Width + column) = {
            first.value[2 * half], first.value[2 * half + 1]};
        float* linear2 = part + kGradients.linear2_weight + column * kInner + unit;
        linear2[0] = second.value[2 * half];
        linear2[kInner] = second.value[2 * half + 1];
      }
      if (lane.column == 0) part[kGradients.linear1_bias + unit] = sums.linear1_bias.value[2 * half + strip];
    }
  }
}

/// The threads' sums over rows -> the block's part. At width 32 a warp has each column twice, of other rows.
template <int Width>
__device__ void store_column_sums(const Memory<Width>& memory, float* part) {
  constexpr MlpGradients kGradients = MlpGradients::of(Width);
  constexpr int kVector = kGradients.norm2_weight - kGradients.linear2_bias;
  const auto* norm2 = reinterpret_cast<const float(*)[4]>(memory.norm2_sums);
  const auto* linear2_bias = reinterpret_cast<const float(*)[2]>(memory.linear2_bias_sums);
  for (int column = threadIdx.x; column < kVector; column += Memory<Width>::kThreads) {
    float weight = 0.0f, bias = 0.0f, linear2 = 0.0f;
    for (int warp = 0; column < Width && warp < Memory<Width>::kWarps; ++warp) {
      for (int chunk = column / kChunk; chunk < 8; chunk += Width / kChunk) {
        const int thread = kWarp * warp + 4 * (column % kChunk) + chunk / 2;
        weight += norm2[thread][chunk % 2];
        bias += norm2[thread][2 + chunk % 2];
        linear2 += linear2_bias[thread][chunk % 2];
      }
    }
    part[kGradients.norm2_weight + column] = weight;
    part[kGradients.norm2_bias + column] = bias;
    part[kGradients.linear2_bias + column] = linear2;
  }
}

/// Starts to copy what stays in shared memory.
template <int Width>
__device__ void fetch_weights(Memory<Width>& memory, const BlockWeights& weights) {
  constexpr int kInner = 4 * Width, kThreads = Memory<Width>::kThreads;
  const int thread = threadIdx.x;
  start_copy(Tile<Width>{memory.linear1}, weights.linear1_weight, kInner, thread, kThreads);
  start_copy(Tile<kInner>{memory.linear2}, weights.linear2_weight, Width, thread, kThreads);
  if (thread < kInner / kChunk) {
    start_copy(memory.linear1_bias + kChunk * thread, weights.linear1_bias + kChunk * thread);
  }
  if (thread < Width / kChunk) {
    start_copy(memory.norm1_weight + kChunk * thread, weights.norm1_weight + kChunk * thread);
    start_copy(memory.norm1_bias + kChunk * thread, weights.norm1_bias + kChunk * thread);
    start_copy(memory.norm2_weight + kChunk * thread, weights.norm2_weight + kChunk * thread);
  }
}

/// Thread blocks that run on a multiprocessor at once.
constexpr int blocks_at_once(int width) {
  return width == 32 ? 2 : 1;
}

template <int Width, bool kDropout>
__global__ void __launch_bounds__(Memory<Width>::kThreads, blocks_at_once(Width))
    mlp_backward_kernel(const __grid_constant__ Arguments arguments) {
  Memory<Width>& memory = *reinterpret_cast<Memory<Width>*>(dynamic_shared_memory());
  const Tile<Width> linear1{memory.linear1};
  const Tile<4 * Width> linear2{memory.linear2};
  const float scale = kDropout ? arguments.scale : 1.0f;

  // The block's tiles: blockIdx.x + i · gridDim.x.
  const int all_tiles = static_cast<int>((arguments.rows + kTileRows - 1) / kTileRows);
  const int tiles = (all_tiles - static_cast<int>(blockIdx.x) + gridDim.x - 1) / gridDim.x;
  const auto first_row = [&](int i) {
    return int64_t{kTileRows} * (static_cast<int64_t>(i) * gridDim.x + blockIdx.x);
  };

  fetch_weights(memory, arguments.weights);
  fetch<Width, kDropout>(memory, arguments, first_row(0), memory.inner_keep[0]);
  WeightSums<Width> sums;
  clear(sums);
  memory.norm2_sums[threadIdx.x] = {};
  memory.linear2_bias_sums[threadIdx.x] = {};
  copies_arrived();
  __syncthreads();

#pragma unroll 1
  for (int step = 0; step < tiles + 2; ++step) {
    if (step < tiles) {
      copies_arrived();  // the thread's own; the words of inner_keep are used behind the next barrier
      norm_stage<Width, kDropout>(memory, scale, {memory.x1[step % 2]}, {memory.df[step % 2]},
                                  {memory.du2[step % 3]});
      if (step + 1 < tiles) {
        fetch<Width, kDropout>(memory, arguments, first_row(step + 1), memory.inner_keep[(step + 1) % 3]);
      }
    }
    if (step >= 1 && step <= tiles) {
      const int i = step - 1;
      hidden_stage<Width, kDropout>(memory, linear1, linear2, {memory.x1[i % 2]}, {memory.df[i % 2]},
                                    memory.inner_keep[i % 3][warp_number()], scale, {memory.dh[i % 2]}, sums);
    }
    if (step >= 2) {
      const int i = step - 2;
      input_stage<Width>(linear1, {memory.dh[i % 2]}, {memory.du2[i % 3]},
                         arguments.dx1 + first_row(i) * Width, rows_from(arguments, first_row(i)));
    }
    __syncthreads();
  }

  float* part = arguments.parts + int64_t{MlpGradients::of(Width).total} * blockIdx.x;
  store_hidden_sums(sums, part);
  store_column_sums(memory, part);
}

template <int Width, bool kDropout>
void launch(int blocks, const Arguments& arguments, cudaStream_t stream) {
  gpu::launch("mlp_backward_kernel", mlp_backward_kernel<Width, kDropout>, blocks, Memory<Width>::kThreads,
              sizeof(Memory<Width>), stream, arguments);
}

}  // namespace

int mlp_backward_parts(const BlockShape& shape) {
  const int64_t tiles = (shape.all_rows() + kTileRows - 1) / kTileRows;
  return static_cast<int>(std::min<int64_t>(tiles, gpu::multiprocessors() * blocks_at_once(shape.width)));
}

void mlp_backward(const BlockShape& shape, const BlockWeights& weights, const KeepBits& keep,
                  const BlockActivations& activations, const __nv_bfloat16* dy, __nv_bfloat16* dx1,
                  float* parts, cudaStream_t stream) {
  const Arguments arguments = {weights,
                               keep.inner,
                               keep.output,
                               keep.hidden_scale,
                               dy,
                               activations.normed1,
                               activations.normed2,
                               activations.inverse2,
                               shape.all_rows(),
                               dx1,
                               parts};
  const int blocks = mlp_backward_parts(shape);
  const bool dropout = keep.inner != nullptr;
  if (shape.width == 64) {
    (dropout ? launch<64, true> : launch<64, false>)(blocks, arguments, stream);
  } else {
    (dropout ? launch<32, true> : launch<32, false>)(blocks, arguments, stream);
  }
}

}  // namespace adtrain::kernels
