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

/// The backward pass of y = norm2(x1 + drop(linear2(drop(gelu(linear1(x1)))))). For a row:
///
///     du2 = inverse2 (g − mean(g) − normed2 · mean(g · normed2)),  g = dy · norm2_weight
///     df = drop'(du2),  h = linear1(x1),  a = drop(gelu(h)),  da = df · linear2_weight
///     dh = drop'(da) · gelu'(h),  dx1 = du2 + dh · linear1_weight
///
/// and, over all rows, dlinear1_weight = dhᵀ x1, dlinear2_weight = dfᵀ a and the sums for the vectors.
///
/// The hidden layer is transposed: a warp has 32 hidden units for the whole launch, and its products have
/// hidden units as rows and rows of the batch as columns. So a and dh, as a warp holds them in registers, are
/// left operands of the sums for the weights. These sums stay in registers until the last row: (32, D) of
/// each matrix. Only dx1 sums over all hidden units; for it dh goes through shared memory.
///
/// A thread block takes tiles of 64 rows through three stages, norm, hidden and input, one per step. In a
/// step the stages work on three different tiles, so that they are independent and one barrier per step is
/// enough. Between two barriers the warps drift apart: one uses the tensor cores while another does
/// arithmetic.
namespace adtrain::kernels {
namespace {

using namespace mlp_backward_pass;

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

  // The thread block's tiles are blockIdx.x + i · gridDim.x.
  const int all_tiles = static_cast<int>((arguments.rows + kTileRows - 1) / kTileRows);
  const int tiles = (all_tiles - static_cast<int>(blockIdx.x) + gridDim.x - 1) / gridDim.x;
  const auto first_row = [&](int i) {
    return int64_t{kTileRows} * (static_cast<int64_t>(i) * gridDim.x + blockIdx.x);
  };

  fetch_weights(memory, arguments.weights);
  WeightSums<Width> sums;
  clear(sums);
  memory.norm2_sums[threadIdx.x] = {};
  memory.linear2_bias_sums[threadIdx.x] = {};
  follow_kernels_ahead();
  fetch<Width, kDropout>(memory, arguments, first_row(0), memory.inner_keep[0]);
  copies_arrived();
  __syncthreads();

#pragma unroll 1
  for (int step = 0; step < tiles + 2; ++step) {
    if (step < tiles) {
      copies_arrived();  // this thread's copies; inner_keep is read after the next barrier
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
