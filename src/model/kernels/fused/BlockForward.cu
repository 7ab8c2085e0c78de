#include <algorithm>

#include "base/Launch.cuh"
#include "model/kernels/fused/BlockForward.h"
#include "model/kernels/fused/Instructions.cuh"
#include "model/kernels/fused/Tile.cuh"
#include "model/kernels/fused/block_forward/Attention.cuh"
#include "model/kernels/fused/block_forward/DropoutBits.cuh"
#include "model/kernels/fused/block_forward/Features.cuh"
#include "model/kernels/fused/block_forward/KeysAndValues.cuh"
#include "model/kernels/fused/block_forward/Memory.cuh"
#include "model/kernels/fused/block_forward/Mlp.cuh"
#include "model/kernels/fused/block_forward/Norm.cuh"
#include "model/kernels/fused/block_forward/Sequence.cuh"
#include "model/kernels/fused/block_forward/Strips.cuh"

/// A post-norm block's forward pass in one kernel. Thread blocks stay for the whole launch, one a
/// multiprocessor, with all weights in shared memory. A thread block is two groups of 8 warps; each works on
/// sequences of its own, so that one's products run beside the other's exponentials. A group takes a sequence
/// in two phases:
///
///     A. its warps project strips of 16 tokens to keys and values, in shared memory;
///     B. each warp takes strips of tokens that read these, up to two of a stream, through all the rest in
///        registers: heads one after the other, output projection, norm, MLP in chunks of hidden units, norm.
///
/// Keys and values of a second stream's tokens are read by these tokens alone: phase B makes them, in
/// registers. What lies where in shared memory stands in Memory.cuh.
namespace adtrain::kernels {
namespace {

using namespace forward_pass;

/// From the attention's projected output, `sums`, to the block's.
template <int Width, bool Dropout>
__device__ void finish(Sums (&sums)[Width / 8], const Features<Width>& x, const Sequence<Width>& sequence,
                       const Strip& strip) {
  const Job& job = sequence.job;
  const Memory<Width>& memory = sequence.memory;
  const BlockActivations& kept = job.activations;
  unsigned lane = lane_anew();
  add_residual<Width, Dropout>(sums, x, strip, job.keep.projection, job.keep.hidden_scale, lane);
  const Norm norm1 = {memory.norm1_weight, memory.norm1_bias, kept.normed1, kept.inverse1};
  const Features<Width> x1 = layer_norm<Width>(sums, norm1, strip, lane);

  mlp<Width, Dropout>(sums, x1, sequence, strip);
  lane = lane_anew();
  add_residual<Width, Dropout>(sums, x1, strip, job.keep.output, job.keep.hidden_scale, lane);
  const Norm norm2 = {memory.norm2_weight, memory.norm2_bias, kept.normed2, kept.inverse2};
  layer_norm<Width>(sums, norm2, strip, lane).store(job.y, strip, lane);
}

template <int Width, int HeadSize, bool Dropout, bool Streams>
__global__ void __launch_bounds__(kThreads, 1) block_forward_kernel(const __grid_constant__ Job job) {
  const BlockShape& shape = job.shape;
  const int group = threadIdx.x / kGroupThreads, warp = threadIdx.x / kWarp % kGroupWarps;
  const Memory<Width> memory(dynamic_shared_memory(), group);
  copy_weights(memory, job.weights);
  if (threadIdx.x % kGroupThreads < 2 * kMostHeads) memory.longest[threadIdx.x % kGroupThreads] = 0.0f;
  copies_arrived();
  __syncthreads();

  const Turns<Streams> turns(shape, warp);
  int number = group * gridDim.x + blockIdx.x, parity = 0;
  start_tokens(Sequence<Width>{job, memory, number, warp, parity});
#pragma unroll 1
  for (; number < shape.sequences; number += kGroups * gridDim.x, parity = 1 - parity) {
    const Sequence<Width> sequence = {job, memory, number, warp, parity};
    if (Dropout) {
#pragma unroll 1
      for (int turn = 0; turn < turns.count(); ++turn) {
        const Strip strip = turns.strip(number, turn);
        if (strip.exists()) prefetch_bits<Width, HeadSize>(job, strip);
      }
    }
    project_keys_and_values<Width, HeadSize>(sequence);
    group_barrier(1 + group, kGroupThreads);

    if (threadIdx.x % kGroupThreads < kMostHeads) {
      sequence.next().longest()[threadIdx.x % kGroupThreads] = 0.0f;
    }
#pragma unroll 1
    for (int turn = 0; turn < turns.count(); ++turn) {
      const Strip strip = turns.strip(number, turn);
      Features<Width> x;
      Sums sums[Width / 8];
      if (strip.exists()) {
        x = Features<Width>::loaded(sequence.x(strip.second), kStrip * strip.number, shape.tokens,
                                    lane_anew());
        attend<Width, HeadSize, Dropout, Streams>(sums, x, sequence, strip);
      }
      if (turn + 1 == turns.count()) {  // keys and values are needed no longer, in this warp now and in all
                                        // behind the barrier
        group_barrier(1 + group, kGroupThreads);
        start_tokens(sequence.next());
      }
      if (strip.exists()) finish<Width, Dropout>(sums, x, sequence, strip);
    }
  }
}

template <int Width, int HeadSize, bool Dropout, bool Streams>
void launch(const Job& job, cudaStream_t stream) {
  gpu::launch("block_forward_kernel", block_forward_kernel<Width, HeadSize, Dropout, Streams>,
              std::min(gpu::multiprocessors(), job.shape.sequences), kThreads, Memory<Width>::bytes(), stream,
              job);
}

template <int Width, int HeadSize>
void launch(const Job& job, cudaStream_t stream) {
  const bool dropout = job.keep.attention != nullptr;
  if (job.shape.queries > 0) {
    return dropout ? launch<Width, HeadSize, true, true>(job, stream)
                   : launch<Width, HeadSize, false, true>(job, stream);
  }
  return dropout ? launch<Width, HeadSize, true, false>(job, stream)
                 : launch<Width, HeadSize, false, false>(job, stream);
}

template <int Width>
void launch(const Job& job, cudaStream_t stream) {
  switch (job.shape.width / job.shape.heads) {
    case 8:
      return launch<Width, 8>(job, stream);
    case 16:
      return launch<Width, 16>(job, stream);
    default:
      return launch<Width, 32>(job, stream);
  }
}

}  // namespace

void block_forward(const BlockShape& shape, const BlockWeights& weights, const KeepBits& keep,
                   const BlockActivations& activations, __nv_bfloat16* y, cudaStream_t stream) {
  const Job job = {shape, weights, keep, activations, y};
  return shape.width == 64 ? launch<64>(job, stream) : launch<32>(job, stream);
}

}  // namespace adtrain::kernels
