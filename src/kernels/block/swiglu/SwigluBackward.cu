#include <algorithm>

#include "base/Launch.cuh"
#include "kernels/block/swiglu/Swiglu.cuh"
#include "kernels/block/swiglu/Swiglu.h"
#include "kernels/primitives/EarlyStart.cuh"
#include "kernels/primitives/FeatureOrder.cuh"
#include "kernels/primitives/Instructions.cuh"
#include "kernels/primitives/Tile.cuh"

/// The backward pass of y = x1 + w3 h, h = silu(a) · b, a = w1 n, b = w2 n. For a row:
///
///     dh = w3ᵀ dy,  da = dh · b · silu'(a),  db = dh · silu(a),  dn = w1ᵀ da + w2ᵀ db
///
/// and, over all rows, dw1 = daᵀ n, dw2 = dbᵀ n and dw3 = dyᵀ h.
///
/// The hidden layer is transposed: a warp has 16 hidden units for the whole launch, and its products have
/// hidden units as rows and rows of the batch as columns. So da, db and h, as a warp holds them in registers,
/// are left operands of the sums for the weights. These sums stay in registers until the last row, as do the
/// 16 units' weights. Only dn sums over all hidden units; for it da and db go through shared memory.
///
/// Where D = 64, the sums of all hidden units do not fit in a multiprocessor's registers. A thread block
/// therefore has 128 units, and a group of D / 32 thread blocks takes the same tiles of 128 rows. Each writes
/// its own term of dn, and its own units' elements of the group's part.
///
/// A tile goes through two stages, hidden and input. Where the gradients of two tiles fit in shared memory, a
/// step takes one tile through the first stage and the previous tile through the second, and one barrier per
/// step is enough.
namespace adtrain::kernels {
namespace {

constexpr int kTileRows = 128;
constexpr int kBlockUnits = 128;  ///< hidden units of a thread block
constexpr int kWarps = kBlockUnits / kWarpTile;
constexpr int kThreads = kWarps * kWarp;

/// Thread blocks that run on a multiprocessor at once.
constexpr int blocks_at_once(int width) {
  return width == 32 ? 2 : 1;
}

/// A thread block's shared memory. Its weights are those of its hidden units.
template <int Width>
struct SwigluMemory {
  static constexpr int kTiles = Width == 64 ? 2 : 1;  ///< tiles whose gradients fit
  using Rows = Bf16[kTileRows * Width];
  using Weights = Bf16[kBlockUnits * Width];
  using Units = Bf16[kBlockUnits * kTileRows];

  struct Gradients {
    Units da, db;  ///< Tile<128>, (units, rows), transposed: from the hidden stage to the input stage
  };
  struct InOrder {
    Weights w1, w2;              ///< Tile<D>: until they are in registers
    Bf16 w3[4 * Width * Width];  ///< Tile<F>, of all hidden units: likewise
  };

  // bytes at D = 64, at D = 32
  Weights w1, w2;         // 32 K, 16 K Tile<D>, columns in feature order: whole launch
  Rows normed[2], dy[2];  // 64 K, 32 K Tile<D>: from one step before the hidden stage to its end
  union {
    Gradients gradients[kTiles];  // 128 K, 64 K
    InOrder weights;
  };
};
static_assert(sizeof(SwigluMemory<64>) <= 227 * 1024, "a thread block's shared memory");
static_assert(2 * (sizeof(SwigluMemory<32>) + 1024) <= 228 * 1024, "a multiprocessor's shared memory");

struct Arguments {
  SwigluWeights weights;
  const Bf16 *normed, *dy;
  int64_t rows;
  Bf16* dnormed;
  float* parts;
};

/// A warp's 16 rows of w1, w2 and w3ᵀ.
template <int Width>
struct UnitWeights {
  LeftFragment w1[Width / 16], w2[Width / 16], w3[Width / 16];
};

/// A warp's sums over the thread block's rows, (16 hidden units, D) each.
template <int Width>
struct UnitSums {
  Sums w1[Width / 8], w2[Width / 8];  ///< daᵀ n, dbᵀ n
  Sums w3[Width / 8];                 ///< hᵀ dy, the gradient's transpose
};

/// The first of the warp's hidden units among the thread block's.
__device__ inline int warp_unit() {
  return kWarpTile * (threadIdx.x / kWarp);
}

/// Starts to copy a tile that has `rows` rows. Rows beyond these are zeros, which add nothing to the sums.
template <int Width>
__device__ void fetch(Tile<Width> tile, const Bf16* from, int rows) {
  constexpr int kChunks = Width / 8;
  const int column = 8 * (threadIdx.x % kChunks);
#pragma unroll
  for (int below = 0; below < kTileRows; below += kThreads / kChunks) {
    const int row = threadIdx.x / kChunks + below;
    Bf16* to = from_row(tile, below).at(threadIdx.x / kChunks, column);
    if (row < rows) {
      start_copy(to, from + row * Width + column);
    } else {
      *reinterpret_cast<uint4*>(to) = uint4{};
    }
  }
}

/// Starts to copy the weights of the thread block's units from `unit` on.
template <int Width>
__device__ void fetch_weights(SwigluMemory<Width>& memory, const SwigluWeights& weights, int unit) {
  const Bf16 *w1 = weights.w1 + unit * Width, *w2 = weights.w2 + unit * Width;
  start_copy(Tile<Width>{memory.weights.w1}, w1, kBlockUnits, threadIdx.x, kThreads);
  start_copy(Tile<Width>{memory.weights.w2}, w2, kBlockUnits, threadIdx.x, kThreads);
  start_copy(Tile<4 * Width>{memory.weights.w3}, weights.w3, Width, threadIdx.x, kThreads);
  copy_in_feature_order_of_columns(Tile<Width>{memory.w1}, w1, kBlockUnits);
  copy_in_feature_order_of_columns(Tile<Width>{memory.w2}, w2, kBlockUnits);
}

/// The warp's weights; all copies must have arrived. `unit`: the thread block's first unit.
template <int Width>
__device__ UnitWeights<Width> unit_weights(SwigluMemory<Width>& memory, int unit) {
  const Tile<Width> w1 = {memory.weights.w1}, w2 = {memory.weights.w2};
  const Tile<4 * Width> w3 = {memory.weights.w3};
  UnitWeights<Width> result;
#pragma unroll
  for (int step = 0; step < Width / 16; ++step) {
    result.w1[step] = left_of(w1, warp_unit(), 16 * step);
    result.w2[step] = left_of(w2, warp_unit(), 16 * step);
    result.w3[step] = left_of_transposed(w3, 16 * step, unit + warp_unit());
  }
  return result;
}

// The first stage: the hidden layer's values, their gradients, and the sums for the weights.

/// The values and gradients of a warp's hidden units in 16 rows, as left operands of the weights' gradients.
struct Hidden {
  LeftFragment h, da, db;
};

/// From a, b and dh of a pair of rows to part `part` of each fragment.
__device__ inline void activate(Hidden& hidden, int part, const float* a, const float* b, const float* dh) {
  float h[2], da[2], db[2];
#pragma unroll
  for (int i = 0; i < 2; ++i) {
    const float sigmoid = fmaf(0.5f, tanh_of(0.5f * a[i]), 0.5f);
    const float silu = a[i] * sigmoid;
    const float slope = fmaf(-silu, sigmoid, sigmoid) + silu;
    h[i] = silu * b[i];
    da[i] = dh[i] * b[i] * slope;
    db[i] = dh[i] * silu;
  }
  hidden.h.part[part] = packed(h[0], h[1]);
  hidden.da.part[part] = packed(da[0], da[1]);
  hidden.db.part[part] = packed(db[0], db[1]);
}

/// Computes the warp's hidden units of the tiles' first 16 rows.
template <int Width>
__device__ Hidden hidden_of(const UnitWeights<Width>& weights, Tile<Width> normed, Tile<Width> dy,
                            unsigned lane) {
  Sums a[2], b[2], dh[2];
  a[0] = a[1] = b[0] = b[1] = dh[0] = dh[1] = no_sums();
#pragma unroll
  for (int step = 0; step < Width / 16; ++step) {
    const RightFragments normed_rows = right_of_transposed(normed, 0, 16 * step, lane);
    const RightFragments dy_rows = right_of_transposed(dy, 0, 16 * step, lane);
    multiply_add(a[0], a[1], weights.w1[step], normed_rows);
    multiply_add(b[0], b[1], weights.w2[step], normed_rows);
    multiply_add(dh[0], dh[1], weights.w3[step], dy_rows);
  }
  Hidden hidden;
#pragma unroll
  for (int part = 0; part < 4; ++part) {
    const int n = part / 2, first = 2 * (part % 2);
    activate(hidden, part, a[n].value + first, b[n].value + first, dh[n].value + first);
  }
  return hidden;
}

/// Adds the products of the tiles' first 16 rows to the sums for the weights.
template <int Width>
__device__ void add_weight_gradients(UnitSums<Width>& sums, const Hidden& hidden, Tile<Width> normed,
                                     Tile<Width> dy, unsigned lane) {
#pragma unroll
  for (int n = 0; n < Width / 8; n += 2) {
    const RightFragments normed_rows = right_of(normed, 0, 8 * n, lane);
    const RightFragments dy_rows = right_of(dy, 0, 8 * n, lane);
    multiply_add(sums.w1[n], sums.w1[n + 1], hidden.da, normed_rows);
    multiply_add(sums.w2[n], sums.w2[n + 1], hidden.db, normed_rows);
    multiply_add(sums.w3[n], sums.w3[n + 1], hidden.h, dy_rows);
  }
}

/// From n and dy of a tile to da and db, transposed, and the sums.
template <int Width>
__device__ void hidden_stage(const UnitWeights<Width>& weights, Tile<Width> normed, Tile<Width> dy,
                             Tile<kTileRows> da, Tile<kTileRows> db, UnitSums<Width>& sums) {
  const unsigned lane = lane_anew();
  const auto finish = [&](int row, const Hidden& hidden) {
    add_weight_gradients(sums, hidden, from_row(normed, row), from_row(dy, row), lane);
    set_left(from_row(da, warp_unit()), 0, row, hidden.da, lane);
    set_left(from_row(db, warp_unit()), 0, row, hidden.db, lane);
  };
  Hidden hidden = hidden_of(weights, normed, dy, lane);
#pragma unroll 1
  for (int row = 0; row < kTileRows - kWarpTile; row += kWarpTile) {
    // The next rows' arithmetic overlaps with the products of these rows.
    const Hidden next =
        hidden_of(weights, from_row(normed, row + kWarpTile), from_row(dy, row + kWarpTile), lane);
    finish(row, hidden);
    hidden = next;
  }
  finish(kTileRows - kWarpTile, hidden);
}

// The second stage: dn.

/// From da and db of a tile to its `rows` rows of the thread block's term of `dnormed`. A warp has 32 columns
/// of 32 rows where D = 64, of 16 rows where D = 32.
template <int Width>
__device__ void input_stage(Tile<Width> w1, Tile<Width> w2, Tile<kTileRows> da, Tile<kTileRows> db,
                            Bf16* dnormed, int rows) {
  constexpr int kBlocks = Width / 32, kWarpTiles = kTileRows / kWarpTile / (kWarps / kBlocks);
  const unsigned warp = threadIdx.x / kWarp;
  const int row = kWarpTiles * kWarpTile * (warp / kBlocks), column = 32 * (warp % kBlocks);
  Sums sums[kWarpTiles][4];
#pragma unroll
  for (int warp_tile = 0; warp_tile < kWarpTiles; ++warp_tile) {
#pragma unroll
    for (int n = 0; n < 4; ++n) sums[warp_tile][n] = no_sums();
  }
  const auto add = [&](Tile<kTileRows> units, Tile<Width> weights) {
    const RightFragments first = right_of(weights, 0, column), second = right_of(weights, 0, column + 16);
#pragma unroll
    for (int warp_tile = 0; warp_tile < kWarpTiles; ++warp_tile) {
      const LeftFragment left = left_of_transposed(units, 0, row + kWarpTile * warp_tile);
      multiply_add(sums[warp_tile][0], sums[warp_tile][1], left, first);
      multiply_add(sums[warp_tile][2], sums[warp_tile][3], left, second);
    }
  };
#pragma unroll 4
  for (int unit = 0; unit < kBlockUnits; unit += kWarpTile) {
    add(from_row(da, unit), from_row(w1, unit));
    add(from_row(db, unit), from_row(w2, unit));
  }
  const LanePlace lane = lane_place(lane_anew());
  Bf16* to = dnormed + (row + lane.row) * Width + column + 4 * lane.column;
#pragma unroll
  for (int half = 0; half < 2 * kWarpTiles; ++half) {
    store_eight_if(row + lane.row + 8 * half < rows, to + 8 * half * Width, sums[half / 2], half % 2);
  }
}

/// Stores the warp's sums in its elements of the group's part. `unit`: the warp's first unit among all units.
template <int Width>
__device__ void store_sums(const UnitSums<Width>& sums, float* part, int unit) {
  constexpr SwigluGradients kGradients = SwigluGradients::of(Width);
  constexpr int kInner = 4 * Width;
  const LanePlace lane = lane_place(lane_anew());
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    const int own = unit + lane.row + 8 * half;
#pragma unroll
    for (int n = 0; n < Width / 8; ++n) {
      const int column = 8 * n + lane.column;
      const float *w1 = sums.w1[n].value + 2 * half, *w2 = sums.w2[n].value + 2 * half;
      *reinterpret_cast<float2*>(part + kGradients.w1 + own * Width + column) = {w1[0], w1[1]};
      *reinterpret_cast<float2*>(part + kGradients.w2 + own * Width + column) = {w2[0], w2[1]};
      float* w3 = part + kGradients.w3 + column * kInner + own;
      w3[0] = sums.w3[n].value[2 * half];
      w3[kInner] = sums.w3[n].value[2 * half + 1];
    }
  }
}

template <int Width>
__global__ void __launch_bounds__(kThreads, blocks_at_once(Width))
    swiglu_backward_kernel(const __grid_constant__ Arguments arguments) {
  constexpr int kTerms = swiglu_backward_terms(Width);
  static_assert(kTerms * kBlockUnits == 4 * Width);
  using Memory = SwigluMemory<Width>;
  Memory& memory = *reinterpret_cast<Memory*>(dynamic_shared_memory());

  // The group's tiles are group + i · groups.
  const int groups = gridDim.x / kTerms, group = blockIdx.x / kTerms, term = blockIdx.x % kTerms;
  const int all_tiles = static_cast<int>((arguments.rows + kTileRows - 1) / kTileRows);
  const int tiles = (all_tiles - group + groups - 1) / groups;
  const auto first_row = [&](int i) {
    return int64_t{kTileRows} * (static_cast<int64_t>(i) * groups + group);
  };
  const auto fetch_rows = [&](int i) {
    const int64_t first = first_row(i);
    const int rows = rows_from(first, arguments.rows, kTileRows);
    fetch(Tile<Width>{memory.normed[i % 2]}, arguments.normed + first * Width, rows);
    fetch(Tile<Width>{memory.dy[i % 2]}, arguments.dy + first * Width, rows);
  };
  Bf16* dnormed = arguments.dnormed + term * arguments.rows * Width;

  const int unit = term * kBlockUnits;
  fetch_weights(memory, arguments.weights, unit);
  follow_kernels_ahead();
  fetch_rows(0);
  copies_arrived();
  __syncthreads();
  const UnitWeights<Width> weights = unit_weights(memory, unit);
  UnitSums<Width> sums;
#pragma unroll
  for (int n = 0; n < Width / 8; ++n) sums.w1[n] = sums.w2[n] = sums.w3[n] = no_sums();
  __syncthreads();

#pragma unroll 1
  for (int step = 0; step < tiles + Memory::kTiles - 1; ++step) {
    if (step + 1 < tiles) fetch_rows(step + 1);
    if (step < tiles) {
      typename Memory::Gradients& gradients = memory.gradients[step % Memory::kTiles];
      hidden_stage<Width>(weights, {memory.normed[step % 2]}, {memory.dy[step % 2]}, {gradients.da},
                          {gradients.db}, sums);
    }
    if (Memory::kTiles == 1) __syncthreads();
    const int i = step - (Memory::kTiles - 1);
    if (i >= 0) {
      typename Memory::Gradients& gradients = memory.gradients[i % Memory::kTiles];
      input_stage<Width>({memory.w1}, {memory.w2}, {gradients.da}, {gradients.db},
                         dnormed + first_row(i) * Width, rows_from(first_row(i), arguments.rows, kTileRows));
    }
    copies_arrived();
    __syncthreads();
  }
  store_sums(sums, arguments.parts + int64_t{SwigluGradients::of(Width).total} * group, unit + warp_unit());
}

template <int Width>
void launch(int parts, const Arguments& arguments, cudaStream_t stream) {
  launch_early("swiglu_backward_kernel", swiglu_backward_kernel<Width>, parts * swiglu_backward_terms(Width),
               kThreads, sizeof(SwigluMemory<Width>), stream, arguments);
}

}  // namespace

int swiglu_backward_parts(int64_t rows, int width) {
  const int64_t tiles = (rows + kTileRows - 1) / kTileRows;
  const int at_once = gpu::multiprocessors() * blocks_at_once(width) / swiglu_backward_terms(width);
  return static_cast<int>(std::min<int64_t>(tiles, std::max(at_once, 1)));
}

void swiglu_backward(int64_t rows, int width, const SwigluWeights& weights, const __nv_bfloat16* normed,
                     const __nv_bfloat16* dy, __nv_bfloat16* dnormed, float* parts, cudaStream_t stream) {
  const Arguments arguments = {weights, normed, dy, rows, dnormed, parts};
  const int count = swiglu_backward_parts(rows, width);
  return width == 64 ? launch<64>(count, arguments, stream) : launch<32>(count, arguments, stream);
}

}  // namespace adtrain::kernels
