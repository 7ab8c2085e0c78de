#pragma once

#include <algorithm>

#include "base/Launch.cuh"
#include "kernels/block/attention_backward/AttentionSublayer.cuh"
#include "kernels/block/attention_backward/Copies.cuh"
#include "kernels/block/attention_backward/Keys.cuh"
#include "kernels/block/attention_backward/ParameterSums.cuh"
#include "kernels/block/attention_backward/Plan.cuh"
#include "kernels/block/attention_backward/Projections.cuh"
#include "kernels/block/attention_backward/Queries.cuh"
#include "kernels/primitives/EarlyStart.cuh"
#include "kernels/primitives/TransferInstructions.cuh"

/// The kernel, and its launch for a shape.
namespace adtrain::kernels::backward_pass {

/// The number of thread blocks of a launch.
inline int blocks_for(const BlockShape& shape) {
  return std::min(shape.sequences, 64 / shape.width * gpu::multiprocessors());
}

template <class V>
__global__ void __launch_bounds__(Plan<V::kWidth, V::kHeadSize>::kThreads,
                                  Plan<V::kWidth, V::kHeadSize>::kBlocks)
    attention_backward_kernel(const __grid_constant__ typename V::Block::Job job) {
  AttentionSublayer<V>(job, aligned_shared_memory()).run();
}

template <class V>
void launch(const typename V::Block::Job& job, cudaStream_t stream) {
  using P = Plan<V::kWidth, V::kHeadSize>;
  launch_early("attention_backward_kernel", attention_backward_kernel<V>, blocks_for(job.shape), P::kThreads,
               P::kBytes, stream, job);
}

template <class Block, int Width, int HeadSize>
void launch_for_streams(const typename Block::Job& job, cudaStream_t stream) {
  const bool dropout = job.keep.attention != nullptr;
  if (job.shape.queries > 0) {
    dropout ? launch<Variant<Block, Width, HeadSize, true, true>>(job, stream)
            : launch<Variant<Block, Width, HeadSize, false, true>>(job, stream);
  } else {
    dropout ? launch<Variant<Block, Width, HeadSize, true, false>>(job, stream)
            : launch<Variant<Block, Width, HeadSize, false, false>>(job, stream);
  }
}

template <class Block>
void launch_for_shape(const typename Block::Job& job, cudaStream_t stream) {
  const int head_size = job.shape.width / job.shape.heads;
  if (job.shape.width == 64) {
    if (head_size == 8) launch_for_streams<Block, 64, 8>(job, stream);
    if (head_size == 16) launch_for_streams<Block, 64, 16>(job, stream);
    if (head_size == 32) launch_for_streams<Block, 64, 32>(job, stream);
  } else {
    if (head_size == 8) launch_for_streams<Block, 32, 8>(job, stream);
    if (head_size == 16) launch_for_streams<Block, 32, 16>(job, stream);
    if (head_size == 32) launch_for_streams<Block, 32, 32>(job, stream);
  }
}

}  // namespace adtrain::kernels::backward_pass
