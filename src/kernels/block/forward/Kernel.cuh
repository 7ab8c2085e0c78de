#pragma once

#include <algorithm>

#include "base/Launch.cuh"
#include "kernels/attention/resident/forward/Features.cuh"
#include "kernels/attention/resident/forward/Memory.cuh"
#include "kernels/attention/resident/forward/Sequence.cuh"
#include "kernels/attention/resident/forward/WarpTiles.cuh"
#include "kernels/block/BlockTensors.h"
#include "kernels/block/forward/Attention.cuh"
#include "kernels/block/forward/KeysAndValues.cuh"
#include "kernels/block/forward/Norm.cuh"
#include "kernels/block/forward/Products.cuh"
#include "kernels/primitives/EarlyStart.cuh"
#include "kernels/primitives/Instructions.cuh"
#include "kernels/primitives/Tile.cuh"
#include "kernels/primitives/TransferInstructions.cuh"

/// A block's forward pass in one kernel: all of a post-norm block (PostNorm.cuh), or a pre-norm block's
/// attention sublayer (PreNorm.cuh). Thread blocks are persistent, one per multiprocessor, with all weights
/// in shared memory. A thread block is two groups of 8 warps. Each group works on sequences of its own, so
/// that one group's products overlap with the other's exponentials. A group processes a sequence in two
/// phases:
///
///     A. Its warps project warp tiles of 16 tokens to keys and values in shared memory.
///     B. Each warp takes warp tiles of tokens that read these, up to two of a stream, through the rest of
///        the block in registers: the queries of all heads, the heads one after another and the output
///        projection; in a post-norm block also norm, MLP in chunks of hidden units, norm.
///
/// At width 64 four neighbouring warps multiply by weights together (Products.cuh), each its own warp tile,
/// and wait for each other there. A warp without a warp tile comes along where another of the four has one.
///
/// Keys and values of a second stream's tokens are read by these tokens alone, so phase B computes them in
/// registers. Warp tiles of padding are skipped; their output is 0. Memory.cuh describes the shared memory.
namespace adtrain::kernels::forward_pass {

/// The warp's warp tile in a turn, without a number where all of it is padding.
template <class Block, int Width, class Schedule>
__device__ WarpTile tile_of_turn(const Sequence<Block, Width>& sequence, const Schedule& schedule, int turn) {
  const WarpTile warp_tile = schedule.warp_tile(sequence.number, turn);
  if (!sequence.pads(warp_tile)) return warp_tile;
  return {sequence.job.shape, sequence.number, warp_tile.second, -1};
}

/// Its x, or zeros where it does not exist, as after the last turn.
template <class Block, int Width, class Schedule>
__device__ Features<Width> x_of(const Sequence<Block, Width>& sequence, const Schedule& schedule, int turn) {
  const WarpTile warp_tile = tile_of_turn(sequence, schedule, turn);
  if (!warp_tile.exists()) return {};
  return load_warp_tile(sequence, sequence.job.input(), warp_tile);
}

template <class Block, int Width, int HeadSize, bool Dropout, bool Streams>
__global__ void __launch_bounds__(kThreads, 1)
    block_forward_kernel(const __grid_constant__ typename Block::Job job) {
  const BlockShape& shape = job.shape;
  const int warp_of_block = __shfl_sync(kAllLanes, threadIdx.x / kWarp, 0);  // the same in all lanes
  const int group = warp_of_block / kGroupWarps, warp = warp_of_block % kGroupWarps;
  const Memory<Block, Width> memory(aligned_shared_memory(), group);
  Block::template copy_weights<HeadSize>(memory, job);
  if (threadIdx.x % kGroupThreads < 2 * kMostHeads) memory.longest[threadIdx.x % kGroupThreads] = 0.0f;
  copies_arrived();
  if constexpr (kByWarpgroups<Width>) show_to_products();
  __syncthreads();
  // Dropout masks of the next block come next, where this one leaves multiprocessors free.
  follow_kernels_ahead();

  const WarpTileSchedule<Streams, kWarpsTogether<Width>> schedule(shape, warp);
  int number = group * gridDim.x + blockIdx.x, parity = 0;
  start_tokens(Sequence<Block, Width>{job, memory, number, warp, parity});
#pragma unroll 1
  for (; number < shape.sequences; number += kGroups * gridDim.x, parity = 1 - parity) {
    const Sequence<Block, Width> sequence = {job, memory, number, warp, parity};
    if (Dropout || Block::kResidualApart || Block::kPadded) {
#pragma unroll 1
      for (int i = 0; i < schedule.count(); ++i) {
        const WarpTile warp_tile = schedule.warp_tile(number, i);
        if (!warp_tile.exists()) continue;
        if (Dropout || Block::kResidualApart)
          Block::template prefetch_for<HeadSize, Dropout>(sequence, warp_tile);
        if constexpr (Block::kPadded) {
          if (sequence.pads(warp_tile)) Block::clear(sequence, warp_tile);
        }
      }
    }
    project_keys_and_values<HeadSize>(sequence);
    Features<Width> x = x_of(sequence, schedule, 0);
    group_barrier(1 + group, kGroupThreads);

    if (threadIdx.x % kGroupThreads < kMostHeads) {
      sequence.next().longest()[threadIdx.x % kGroupThreads] = 0.0f;
    }
#pragma unroll 1
    for (int i = 0; i < schedule.count(); ++i) {
      const WarpTile warp_tile = tile_of_turn(sequence, schedule, i);
      bool needed = schedule.has_tiles(i);
      if constexpr (Block::kPadded) {
        needed = schedule.any(number, i,
                              [&](const WarpTile& tile) { return tile.exists() && !sequence.pads(tile); });
      }
      LeftFragment heads[Width / 16] = {};
      Residual<Width> residual = {};
      if (needed) {
        project_queries<HeadSize>(heads, x, sequence, warp_tile);
        if (warp_tile.exists()) attend<HeadSize, Dropout, Streams>(heads, x, sequence, warp_tile);
        residual = Block::template residual_of<Dropout>(x, sequence, warp_tile);
      }
      if (i + 1 == schedule.count()) {
        // This warp no longer needs keys and values; after the barrier no warp of the group does.
        group_barrier(1 + group, kGroupThreads);
        start_tokens(sequence.next());
      }
      const auto load_next = [&] { x = x_of(sequence, schedule, i + 1); };
      if (needed) {
        Block::template finish<Dropout>(heads, residual, sequence, warp_tile, load_next);
      } else {
        load_next();
      }
    }
  }
}

template <class Block, int Width, int HeadSize, bool Dropout, bool Streams>
void launch(const typename Block::Job& job, cudaStream_t stream) {
  launch_early("block_forward_kernel", block_forward_kernel<Block, Width, HeadSize, Dropout, Streams>,
               std::min(gpu::multiprocessors(), job.shape.sequences), kThreads, Memory<Block, Width>::bytes(),
               stream, job);
}

template <class Block, int Width, int HeadSize>
void launch(const typename Block::Job& job, cudaStream_t stream) {
  const bool dropout = job.attention_keep() != nullptr;
  if (job.shape.queries > 0) {
    return dropout ? launch<Block, Width, HeadSize, true, true>(job, stream)
                   : launch<Block, Width, HeadSize, false, true>(job, stream);
  }
  return dropout ? launch<Block, Width, HeadSize, true, false>(job, stream)
                 : launch<Block, Width, HeadSize, false, false>(job, stream);
}

template <class Block, int Width>
void launch(const typename Block::Job& job, cudaStream_t stream) {
  switch (job.shape.width / job.shape.heads) {
    case 8:
      return launch<Block, Width, 8>(job, stream);
    case 16:
      return launch<Block, Width, 16>(job, stream);
    default:
      return launch<Block, Width, 32>(job, stream);
  }
}

template <class Block>
void launch(const typename Block::Job& job, cudaStream_t stream) {
  return job.shape.width == 64 ? launch<Block, 64>(job, stream) : launch<Block, 32>(job, stream);
}

}  // namespace adtrain::kernels::forward_pass
