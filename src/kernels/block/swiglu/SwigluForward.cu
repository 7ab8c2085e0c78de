#include <algorithm>

#include "base/Launch.cuh"
#include "kernels/block/swiglu/Swiglu.cuh"
#include "kernels/block/swiglu/Swiglu.h"
#include "kernels/primitives/EarlyStart.cuh"
#include "kernels/primitives/FeatureOrder.cuh"
#include "kernels/primitives/Instructions.cuh"
#include "kernels/primitives/Tile.cuh"

/// y = x1 + w3 (silu(w1 n) · w2 n). Thread blocks are persistent, one per multiprocessor, with all weights in
/// shared memory. Each warp takes 32 rows at once through everything in registers, in chunks of hidden units,
/// and waits for no other warp. Two warp tiles share each fragment of the weights: with one alone, reading
/// the fragments from shared memory would take longer than the products.
namespace adtrain::kernels {
namespace {

constexpr int kWarpTiles = 2;  ///< that a warp processes at once
constexpr int kRows = kWarpTiles * kWarpTile;

/// A thread block's shared memory: at D = 64, 96 K of weights and 96 K of rows.
template <int Width>
struct SwigluMemory {
  static constexpr int kInner = 4 * Width;
  static constexpr int kWarps = Width == 64 ? 12 : 16;
  static constexpr int kThreads = kWarps * kWarp;
  /// The warps' next rows, being copied from global memory. x1 is in the order in which its threads read it:
  /// [half of a warp tile][32 features][thread].
  using Rows = Bf16[kWarps][kRows * Width];
  using LaneRows = uint4[2 * kWarpTiles][Width / 32][kThreads];

  Bf16 w1[kInner * Width], w2[kInner * Width];  ///< Tile<D>: whole launch
  Bf16 w3[Width * kInner];                      ///< Tile<F>, rows in feature order: whole launch
  Rows normed;                                  ///< Tile<D>
  LaneRows x1;
};
static_assert(sizeof(SwigluMemory<64>) <= 227 * 1024, "a thread block's shared memory");

struct Arguments {
  SwigluWeights weights;
  const Bf16 *normed, *x1;
  Bf16* y;
  int64_t rows;
};

/// The warp's rows of n.
template <int Width>
__device__ Tile<Width> normed_tile(SwigluMemory<Width>& memory) {
  return {memory.normed[threadIdx.x / kWarp]};
}

/// Starts to copy the warp's rows from `first` on. Rows beyond the last one repeat it.
template <int Width>
__device__ void fetch(SwigluMemory<Width>& memory, const Arguments& arguments, int64_t first) {
  constexpr int kChunks = Width / 8, kRowsApart = kWarp / kChunks;
  const unsigned lane = lane_anew();
  const LanePlace place = lane_place(lane);
  const int last = rows_from(first, arguments.rows, kRows) - 1;
  const Bf16 *normed = arguments.normed + first * Width, *x1 = arguments.x1 + first * Width;
  const int chunk = 8 * (lane % kChunks);
#pragma unroll
  for (int row = lane / kChunks; row < kRows; row += kRowsApart) {
    start_copy(normed_tile(memory).at(row, chunk), normed + min(row, last) * Width + chunk);
  }
#pragma unroll
  for (int half = 0; half < 2 * kWarpTiles; ++half) {
#pragma unroll
    for (int block = 0; block < Width / 32; ++block) {
      start_copy(reinterpret_cast<Bf16*>(&memory.x1[half][block][threadIdx.x]),
                 x1 + min(place.row + 8 * half, last) * Width + 32 * block + 4 * place.column);
    }
  }
}

/// Sums that begin with the warp tile's rows of x1, in feature order.
template <int Width>
__device__ void start_from_residual(Sums (&sums)[Width / 8], const SwigluMemory<Width>& memory,
                                    int warp_tile) {
#pragma unroll
  for (int half = 0; half < 2; ++half) {
#pragma unroll
    for (int block = 0; block < Width / 32; ++block) {
      const uint4 eight = memory.x1[2 * warp_tile + half][block][threadIdx.x];
      const uint32_t pairs[4] = {eight.x, eight.y, eight.z, eight.w};
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        const float2 pair = unpacked(pairs[i]);
        sums[4 * block + i].value[2 * half] = pair.x;
        sums[4 * block + i].value[2 * half + 1] = pair.y;
      }
    }
  }
}

/// silu(a) b with silu(a) = t + t tanh t, t = a / 2.
__device__ inline float gated(float a, float b) {
  const float t = 0.5f * a;
  return fmaf(t, tanh_of(t), t) * b;
}

/// out += w3 (silu(w1 n) · w2 n).
template <int Width>
__device__ void add_mlp(Sums (&out)[kWarpTiles][Width / 8], const LeftFragment (&n)[kWarpTiles][Width / 16],
                        SwigluMemory<Width>& memory) {
  const unsigned lane = lane_anew();
  const Tile<4 * Width> w3 = {memory.w3};
#pragma unroll 1
  for (int unit = 0; unit < 4 * Width; unit += 16) {
    const Tile<Width> w1 = from_row(Tile<Width>{memory.w1}, unit);
    const Tile<Width> w2 = from_row(Tile<Width>{memory.w2}, unit);
    Sums a[kWarpTiles][2], b[kWarpTiles][2];
#pragma unroll
    for (int warp_tile = 0; warp_tile < kWarpTiles; ++warp_tile) {
      a[warp_tile][0] = a[warp_tile][1] = b[warp_tile][0] = b[warp_tile][1] = no_sums();
    }
#pragma unroll
    for (int step = 0; step < Width / 16; ++step) {
      const RightFragments of_a = right_of_transposed(w1, 0, 16 * step, lane);
      const RightFragments of_b = right_of_transposed(w2, 0, 16 * step, lane);
#pragma unroll
      for (int warp_tile = 0; warp_tile < kWarpTiles; ++warp_tile) {
        multiply_add(a[warp_tile][0], a[warp_tile][1], n[warp_tile][step], of_a);
        multiply_add(b[warp_tile][0], b[warp_tile][1], n[warp_tile][step], of_b);
      }
    }
    LeftFragment hidden[kWarpTiles];
#pragma unroll
    for (int warp_tile = 0; warp_tile < kWarpTiles; ++warp_tile) {
#pragma unroll
      for (int i = 0; i < 8; ++i) {
        float& value = a[warp_tile][i / 4].value[i % 4];
        value = gated(value, b[warp_tile][i / 4].value[i % 4]);
      }
      hidden[warp_tile] = as_left(a[warp_tile][0], a[warp_tile][1]);
    }
#pragma unroll
    for (int i = 0; i < Width / 16; ++i) {
      const RightFragments right = right_of_transposed(w3, 16 * i, unit, lane);
#pragma unroll
      for (int warp_tile = 0; warp_tile < kWarpTiles; ++warp_tile) {
        multiply_add(out[warp_tile][2 * i], out[warp_tile][2 * i + 1], hidden[warp_tile], right);
      }
    }
  }
}

/// Stores the rows of y from `first` on.
template <int Width>
__device__ void store(const Arguments& arguments, int64_t first, const Sums (&out)[kWarpTiles][Width / 8]) {
  const LanePlace lane = lane_place(lane_anew());
  const int rows = rows_from(first, arguments.rows, kRows);
  Bf16* to = arguments.y + first * Width + lane.row * Width + 4 * lane.column;
#pragma unroll
  for (int half = 0; half < 2 * kWarpTiles; ++half) {
#pragma unroll
    for (int block = 0; block < Width / 32; ++block) {
      store_eight_if(lane.row + 8 * half < rows, to + 8 * half * Width + 32 * block,
                     out[half / 2] + 4 * block, half % 2);
    }
  }
}

template <int Width>
__global__ void __launch_bounds__(SwigluMemory<Width>::kThreads, 1)
    swiglu_kernel(const __grid_constant__ Arguments arguments) {
  SwigluMemory<Width>& memory = *reinterpret_cast<SwigluMemory<Width>*>(dynamic_shared_memory());

  // Consecutive groups of rows go to different thread blocks, so that few rows are spread over many of them.
  const int64_t apart = int64_t{kRows} * gridDim.x * SwigluMemory<Width>::kWarps;
  int64_t first = int64_t{kRows} * (blockIdx.x + gridDim.x * (threadIdx.x / kWarp));
  copy_in_feature_order_of_rows(Tile<4 * Width>{memory.w3}, arguments.weights.w3, Width);
  start_copy(Tile<Width>{memory.w1}, arguments.weights.w1, 4 * Width, threadIdx.x, blockDim.x);
  start_copy(Tile<Width>{memory.w2}, arguments.weights.w2, 4 * Width, threadIdx.x, blockDim.x);
  follow_kernels_ahead();
  if (first < arguments.rows) fetch(memory, arguments, first);
  copies_arrived();
  __syncthreads();

#pragma unroll 1
  for (; first < arguments.rows; first += apart) {
    copies_arrived();
    __syncwarp();
    LeftFragment n[kWarpTiles][Width / 16];
    Sums out[kWarpTiles][Width / 8];
#pragma unroll
    for (int warp_tile = 0; warp_tile < kWarpTiles; ++warp_tile) {
#pragma unroll
      for (int step = 0; step < Width / 16; ++step) {
        n[warp_tile][step] = left_of(normed_tile(memory), kWarpTile * warp_tile, 16 * step, lane_anew());
      }
      start_from_residual<Width>(out[warp_tile], memory, warp_tile);
    }
    __syncwarp();
    if (first + apart < arguments.rows) fetch(memory, arguments, first + apart);
    add_mlp<Width>(out, n, memory);
    store<Width>(arguments, first, out);
  }
}

template <int Width>
void launch(const Arguments& arguments, cudaStream_t stream) {
  const int64_t row_blocks = (arguments.rows + kRows - 1) / kRows;
  const auto blocks = static_cast<unsigned>(std::min<int64_t>(row_blocks, gpu::multiprocessors()));
  launch_early("swiglu_kernel", swiglu_kernel<Width>, blocks, SwigluMemory<Width>::kThreads,
               sizeof(SwigluMemory<Width>), stream, arguments);
}

}  // namespace

void swiglu(int64_t rows, int width, const SwigluWeights& weights, const __nv_bfloat16* normed,
            const __nv_bfloat16* x1, __nv_bfloat16* y, cudaStream_t stream) {
  const Arguments arguments = {weights, normed, x1, y, rows};
  return width == 64 ? launch<64>(arguments, stream) : launch<32>(arguments, stream);
}

}  // namespace adtrain::kernels
