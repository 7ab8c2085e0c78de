#pragma once

#include <cstdint>

#include "kernels/attention/resident/forward/DropoutWords.cuh"
#include "kernels/attention/resident/forward/Features.cuh"
#include "kernels/attention/resident/forward/Memory.cuh"
#include "kernels/attention/resident/forward/Sequence.cuh"
#include "kernels/attention/resident/forward/WarpTiles.cuh"
#include "kernels/block/BlockTensors.h"
#include "kernels/block/forward/Products.cuh"
#include "kernels/primitives/Instructions.cuh"
#include "kernels/primitives/Tile.cuh"

/// The MLP in phase B: a warp tile through the MLP, in chunks of hidden units.
namespace adtrain::kernels::forward_pass {

constexpr int kHiddenChunk = 64;

/// The columns of linear2 for the chunk that begins at hidden unit `unit`.
template <int Width>
__device__ Tile<kHiddenChunk> columns_of_chunk(Tile<kHiddenChunk> linear2, int unit) {
  return from_row(linear2, unit / kHiddenChunk * Width);
}

/// 2 gelu(h).
__device__ inline float twice_gelu(float h) {
  constexpr float kLinear = 0.797884561f, kCubic = 0.0356774081f;  // √(2/π), and 0.044715 times that
  return fmaf(h, tanh_of(h * fmaf(kCubic, h * h, kLinear)), h);
}

/// linear2(drop(gelu(linear1(x1)))). All warps that multiply together call this together.
template <bool Dropout, class Block, int Width>
__device__ __forceinline__ void mlp(Sums (&out)[Width / 8], Features<Width>& x1,
                                    const Sequence<Block, Width>& sequence, const WarpTile& warp_tile) {
  constexpr int kInner = 4 * Width, kChunk = kHiddenChunk;
  constexpr bool kTogether = kByWarpgroups<Width>;
  const DropoutMasks& keep = sequence.job.keep;
  const Memory<Block, Width>& memory = sequence.memory;
  const unsigned lane = lane_anew();
#pragma unroll
  for (int eight = 0; eight < Width / 8; ++eight) out[eight] = no_sums();
#pragma unroll 1
  for (int chunk = 0; chunk < kInner; chunk += kChunk) {
    RowWords<kChunk / 32> words = {};
    if (Dropout) words = RowWords<kChunk / 32>::loaded(keep.inner + chunk / 32, kInner / 32, warp_tile);
    Sums hidden[kChunk / 8];
#pragma unroll
    for (int eight = 0; eight < kChunk / 8; ++eight) {
      hidden[eight] = sums_from(memory.linear1_bias + chunk + 8 * eight + lane_place(lane).column);
    }
    start_projection<kTogether>(hidden, x1.step, from_row(memory.linear1, chunk), lane);
    await_projection<kTogether>(hidden);
    keep_until_here<kTogether>(x1.step);
    LeftFragment active[kChunk / 16];
#pragma unroll
    for (int step = 0; step < kChunk / 16; ++step) {
#pragma unroll
      for (int i = 0; i < 8; ++i) {
        float& value = hidden[2 * step + i / 4].value[i % 4];
        value = twice_gelu(value);
      }
      active[step] = as_left(hidden[2 * step], hidden[2 * step + 1]);
      if (Dropout) {
#pragma unroll
        for (int half = 0; half < 2; ++half) {
          const KeptPairs pairs(words.of[half][step / 2], lane);
          uint32_t(&part)[4] = active[step].part;
          part[half] = pairs.kept(part[half], 2 * (step % 2));
          part[half + 2] = pairs.kept(part[half + 2], 2 * (step % 2) + 1);
        }
      }
    }
    start_projection<kTogether>(out, active, columns_of_chunk<Width>(memory.linear2, chunk), lane);
    await_projection<kTogether>(out);
    keep_until_here<kTogether>(active);
  }
  const float scale = Dropout ? 0.5f * keep.hidden_scale : 0.5f;
#pragma unroll
  for (int eight = 0; eight < Width / 8; ++eight) {
    const float2 bias = *reinterpret_cast<const float2*>(memory.linear2_bias + feature_of_lane(lane, eight));
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      out[eight].value[i] = fmaf(out[eight].value[i], scale, i % 2 == 0 ? bias.x : bias.y);
    }
  }
}

}  // namespace adtrain::kernels::forward_pass
