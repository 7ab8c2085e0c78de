#pragma once

#include "kernels/attention/resident/forward/Features.cuh"
#include "kernels/attention/resident/forward/ForwardAttention.cuh"
#include "kernels/attention/resident/forward/Memory.cuh"
#include "kernels/attention/resident/forward/Sequence.cuh"
#include "kernels/attention/resident/forward/WarpTiles.cuh"
#include "kernels/block/forward/Products.cuh"
#include "kernels/primitives/Instructions.cuh"
#include "kernels/primitives/Tile.cuh"

/// Attention in phase B: the queries of all heads, the heads one after another, the output projection.
namespace adtrain::kernels::forward_pass {

/// Loads the warp tile's rows of an array (S · (tokens + queries), Width).
template <class Block, int Width>
__device__ Features<Width> load_warp_tile(const Sequence<Block, Width>& sequence, const Bf16* all,
                                          const WarpTile& warp_tile) {
  return Features<Width>::loaded(sequence.rows(all, warp_tile.second), kWarpTile * warp_tile.number,
                                 sequence.job.shape.tokens, lane_anew());
}

/// The queries of all heads. All warps that multiply together call this together, as project_output().
template <int HeadSize, class Block, int Width>
__device__ __forceinline__ void project_queries(LeftFragment (&queries)[Width / 16], Features<Width>& x,
                                                const Sequence<Block, Width>& sequence,
                                                const WarpTile& warp_tile) {
  constexpr bool kTogether = kByWarpgroups<Width>;
  const unsigned lane = lane_anew();
  const int first = kWarpTile * max(warp_tile.number, 0);
  const typename Block::template Rotary<HeadSize> rotary(sequence.job, first, lane);
  Sums projected[Width / 8];
  start_third(projected, 0, x, sequence.memory, lane);
  await_projection<kTogether>(projected);
  keep_until_here<kTogether>(x.step);
  as_queries<HeadSize>(queries, projected, rotary);
}

/// Replaces the queries by the attention output, head by head. The heads that are next have the first
/// columns, because registers cannot be indexed.
template <int HeadSize, bool Dropout, bool Streams, class Block, int Width>
__device__ __forceinline__ void attend(LeftFragment (&heads)[Width / 16], const Features<Width>& x,
                                       const Sequence<Block, Width>& sequence, const WarpTile& warp_tile) {
  using Heads = HeadsRead<Block, Width, HeadSize, Dropout, Streams>;
  constexpr int kOthers = Width / 16 - Heads::kSteps;
#pragma unroll 1
  for (int column = 0; column < Width; column += Heads::kColumns) {
    LeftFragment next[Heads::kSteps];
#pragma unroll
    for (int i = 0; i < Heads::kSteps; ++i) next[i] = heads[i];
#pragma unroll
    for (int i = 0; i < kOthers; ++i) heads[i] = heads[i + Heads::kSteps];
    Heads read(sequence, warp_tile, column);
    read.take_queries(next, x);
    read.attend(x);
    read.finish(next);
#pragma unroll
    for (int i = 0; i < Heads::kSteps; ++i) heads[kOthers + i] = next[i];
  }
}

/// out_proj(attention_output).
template <class Block, int Width>
__device__ __forceinline__ void project_output(Sums (&sums)[Width / 8],
                                               LeftFragment (&attention_output)[Width / 16],
                                               const Memory<Block, Width>& memory) {
  constexpr bool kTogether = kByWarpgroups<Width>;
  const unsigned lane = lane_anew();
  start_from_bias<Width>(sums, memory.out_proj_bias, lane);
  start_projection<kTogether>(sums, attention_output, memory.out_proj, lane);
  await_projection<kTogether>(sums);
  keep_until_here<kTogether>(attention_output);
}

}  // namespace adtrain::kernels::forward_pass
