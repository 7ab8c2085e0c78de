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

/// A warp tile's 32 hidden units. While their product is under way, others are activated.
struct HiddenUnits {
  static constexpr int kUnits = 32;
  Sums sums[kUnits / 8];
  LeftFragment active[kUnits / 16];

  /// Starts linear1 for the units from `unit` on.
  template <class Block, int Width>
  __device__ __forceinline__ void start(int unit, const Features<Width>& x1,
                                        const Memory<Block, Width>& memory, unsigned lane) {
#pragma unroll
    for (int eight = 0; eight < kUnits / 8; ++eight) {
      sums[eight] = sums_from(memory.linear1_bias + unit + 8 * eight + lane_place(lane).column);
    }
    start_projection<kByWarpgroups<Width>>(sums, x1.step, from_row(memory.linear1, unit), lane);
  }

  /// Twice the activations, with zeros for dropped ones. `words`: the units' dropout words for the lane's
  /// rows.
  template <bool Dropout>
  __device__ __forceinline__ void activate(const uint32_t (&words)[2], unsigned lane) {
#pragma unroll
    for (int step = 0; step < kUnits / 16; ++step) {
#pragma unroll
      for (int i = 0; i < 8; ++i) {
        float& value = sums[2 * step + i / 4].value[i % 4];
        value = twice_gelu(value);
      }
      uint32_t(&part)[4] = active[step].part;
      active[step] = as_left(sums[2 * step], sums[2 * step + 1]);
      if (Dropout) {
#pragma unroll
        for (int half = 0; half < 2; ++half) {
          const KeptPairs pairs(words[half], lane);
          part[half] = pairs.kept(part[half], 2 * step);
          part[half + 2] = pairs.kept(part[half + 2], 2 * step + 1);
        }
      }
    }
  }
};

/// linear2(drop(gelu(linear1(x1)))). All warps that multiply together call this together.
template <bool Dropout, class Block, int Width>
__device__ __forceinline__ void mlp(Sums (&out)[Width / 8], Features<Width>& x1,
                                    const Sequence<Block, Width>& sequence, const WarpTile& warp_tile) {
  constexpr int kInner = 4 * Width, kChunk = kHiddenChunk, kUnits = HiddenUnits::kUnits;
  static_assert(kChunk == 2 * kUnits);
  constexpr bool kTogether = kByWarpgroups<Width>;
  const DropoutMasks& keep = sequence.job.keep;
  const Memory<Block, Width>& memory = sequence.memory;
  const unsigned lane = lane_anew();

#pragma unroll
  for (int eight = 0; eight < Width / 8; ++eight) out[eight] = no_sums();
  if constexpr (kTogether) take_sums(out);
  HiddenUnits first, second;
  first.start(0, x1, memory, lane);
#pragma unroll  // so that products' addresses are constants
  for (int chunk = 0; chunk < kInner; chunk += kChunk) {
    const bool last = chunk + kChunk == kInner;
    RowWords<kChunk / 32> words = {};
    if (Dropout) words = RowWords<kChunk / 32>::loaded(keep.inner + chunk / 32, kInner / 32, warp_tile);
    const Tile<kChunk> linear2 = columns_of_chunk<Width>(memory.linear2, chunk);
    second.start(chunk + kUnits, x1, memory, lane);
    await_projection<kTogether, 1>(first.sums);
    if (chunk > 0) keep_until_here<kTogether>(second.active);
    first.template activate<Dropout>({words.of[0][0], words.of[1][0]}, lane);
    start_projection<kTogether>(out, first.active, linear2, 0, lane);
    if (last) {
      await_projection<kTogether, 1>(second.sums);
    } else {
      first.start(chunk + kChunk, x1, memory, lane);
      await_projection<kTogether, 2>(second.sums);
    }
    second.template activate<Dropout>({words.of[0][1], words.of[1][1]}, lane);
    start_projection<kTogether>(out, second.active, linear2, kUnits, lane);
    await_projection<kTogether, 1>(first.sums);
    keep_until_here<kTogether>(first.active);
  }
  await_projection<kTogether>(out);
  keep_until_here<kTogether>(second.active);
  keep_until_here<kTogether>(x1.step);
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
