#include <algorithm>

#include "base/Launch.cuh"
#include "kernels/block/mlp_backward/Hidden.cuh"
#include "kernels/block/mlp_backward/Input.cuh"
#include "kernels/block/mlp_backward/Memory.cuh"
#include "kernels/block/mlp_backward/MlpBackward.h"
#include "kernels/block/mlp_backward/Norm.cuh"
#include "kernels/block/mlp_backward/Sums.cuh"
#include "kernels/primitives/EarlyStart.cuh"
#include "kernels/primitives/Instructions.cuh"
#include "kernels/primitives/Tile.cuh"
#include "kernels/primitives/TransferInstructions.cuh"

/// The backward pass of y = norm2(x1 + drop(linear2(drop(gelu(linear1(x1)))))). For a row:
///
///     du2 = inverse2 (g − mean(g) − normed2 · mean(g · normed2)),  g = dy · norm2_weight
///     df = drop'(du2),  h = linear1(x1),  a = drop(gelu(h)),  da = df · linear2_weight
///     dh = drop'(da) · gelu'(h),  dx1 = du2 + dh · linear1_weight
///
/// and, over all rows, dlinear1_weight = dhᵀ x1, dlinear2_weight = dfᵀ a and the sums for the vectors.
///
/// The hidden layer is transposed: a warpgroup has 128 hidden units for the whole launch, a warp 32 of them,
/// and the warpgroup's products ("wgmma") have hidden units as rows and rows of the batch as columns. So a
/// and dh, as a warp holds them in registers, are left operands of the sums for the weights. These sums stay
/// in registers until the last row: (32, D) of each matrix and warp. Only dx1 sums over all hidden units; for
/// it dh goes through shared memory.
///
/// A thread block takes tiles of 64 rows through three stages, norm, hidden and input, one per step. In a
/// step the stages work on three different tiles, so that they are independent and one barrier per step is
/// enough. A warpgroup of its own has the norm stage, whose long chains of instructions run beside those of
/// the others and need few registers.
namespace adtrain::kernels {
namespace {

using namespace mlp_backward_pass;

constexpr int kStepBarrier = 1;

/// Thread blocks that run on a multiprocessor at once.
constexpr int blocks_at_once(int width) {
  return width == 32 ? 2 : 1;
}

/// Of a thread. All threads begin with equally many.
template <int Width>
struct Registers {
  static constexpr int kHidden = Width == 32 ? 168 : 208, kNorm = 88;

 private:
  using M = Memory<Width>;
  static constexpr int kBegin = 65536 / blocks_at_once(Width) / M::kThreads / 8 * 8;
  static_assert(kHidden * M::kHiddenThreads + kNorm * kNormThreads <= kBegin * M::kThreads,
                "take_registers() would wait for ever");
};

/// The tiles of a thread block: blockIdx.x + i · gridDim.x of all.
class OwnTiles {
 public:
  __device__ explicit OwnTiles(const Arguments& arguments) {
    const int all = static_cast<int>((arguments.rows + kTileRows - 1) / kTileRows);
    count_ =
        (all - static_cast<int>(blockIdx.x) + static_cast<int>(gridDim.x) - 1) / static_cast<int>(gridDim.x);
  }
  /// The last two steps are for the hidden and the input stage of the last tiles.
  __device__ int steps() const { return count_ + 2; }
  __device__ bool has(int tile) const { return tile >= 0 && tile < count_; }
  __device__ int64_t first_row(int tile) const {
    return int64_t{kTileRows} * (static_cast<int64_t>(tile) * gridDim.x + blockIdx.x);
  }

 private:
  int count_;
};

template <int Width>
__device__ void end_step() {
  group_barrier_of_roles(kStepBarrier, Memory<Width>::kThreads);
}

/// The norm stage. The first tile's rows have been fetched.
template <int Width, bool kDropout>
__device__ void run_norm(Memory<Width>& memory, const Arguments& arguments, const OwnTiles& tiles,
                         float scale) {
#pragma unroll 1
  for (int step = 0; step < tiles.steps(); ++step) {
    if (tiles.has(step)) {
      copies_arrived();  // this thread's copies; inner_keep is read after the next barrier
#pragma unroll 1
      for (int turn = 0; turn < Memory<Width>::kTurns; ++turn) {
        norm_stage<Width, kDropout>(memory, turn, scale, {memory.x1[step % 2]}, {memory.df[step % 2]},
                                    {memory.du2[step % 3]});
      }
      show_to_products();
    }
    if (tiles.has(step + 1)) {
      fetch<Width, kDropout>(memory, arguments, tiles.first_row(step + 1), memory.inner_keep[(step + 1) % 3]);
    }
    end_step<Width>();
  }
}

/// The hidden and the input stage.
template <int Width, bool kDropout>
__device__ __forceinline__ void run_hidden(Memory<Width>& memory, const Arguments& arguments,
                                           const OwnTiles& tiles, float scale, float* part) {
  WeightSums<Width> sums;
  clear(sums);
  HiddenStage<Width, kDropout> hidden(memory, scale);
#pragma unroll 1
  for (int step = 0; step < tiles.steps(); ++step) {
    if (const int tile = step - 1; tiles.has(tile)) {
      hidden.run({memory.x1[tile % 2]}, {memory.df[tile % 2]}, memory.inner_keep[tile % 3],
                 {memory.dh[tile % 2]}, sums);
    }
    if (const int tile = step - 2; tiles.has(tile)) {
      input_stage<Width>({memory.linear1}, {memory.dh[tile % 2]}, {memory.du2[tile % 3]},
                         arguments.dx1 + tiles.first_row(tile) * Width,
                         rows_from(arguments, tiles.first_row(tile)));
    }
    end_step<Width>();
  }
  store_hidden_sums(sums, part);
}

template <int Width, bool kDropout>
__global__ void __launch_bounds__(Memory<Width>::kThreads, blocks_at_once(Width))
    mlp_backward_kernel(const __grid_constant__ Arguments arguments) {
  Memory<Width>& memory = *reinterpret_cast<Memory<Width>*>(aligned_shared_memory());
  const OwnTiles tiles(arguments);
  const bool is_hidden = static_cast<int>(threadIdx.x) < Memory<Width>::kHiddenThreads;
  const float scale = kDropout ? arguments.scale : 1.0f;
  float* const part = arguments.parts + int64_t{MlpGradients::of(Width).total} * blockIdx.x;

  fetch_weights(memory, arguments.weights);
  if (!is_hidden) {
    memory.norm2_sums[norm_thread<Width>()] = {};
    memory.linear2_bias_sums[norm_thread<Width>()] = {};
  }
  follow_kernels_ahead();
  if (!is_hidden) fetch<Width, kDropout>(memory, arguments, tiles.first_row(0), memory.inner_keep[0]);
  copies_arrived();
  show_to_products();
  __syncthreads();

  if (is_hidden) {
    take_registers<Registers<Width>::kHidden>();
    run_hidden<Width, kDropout>(memory, arguments, tiles, scale, part);
  } else {
    give_up_registers<Registers<Width>::kNorm>();
    run_norm<Width, kDropout>(memory, arguments, tiles, scale);
    store_column_sums(memory, part);
  }
}

template <int Width, bool kDropout>
void launch(int blocks, const Arguments& arguments, cudaStream_t stream) {
  launch_early("mlp_backward_kernel", mlp_backward_kernel<Width, kDropout>, blocks, Memory<Width>::kThreads,
               sizeof(Memory<Width>), stream, arguments);
}

}  // namespace

int mlp_backward_parts(const BlockShape& shape) {
  const int64_t tiles = (shape.all_rows() + kTileRows - 1) / kTileRows;
  return static_cast<int>(std::min<int64_t>(tiles, gpu::multiprocessors() * blocks_at_once(shape.width)));
}

void mlp_backward(const BlockShape& shape, const BlockWeights& weights, const DropoutMasks& keep,
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
