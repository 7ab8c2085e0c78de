#pragma once

#include <algorithm>

#include "kernels/attention/resident/forward/Features.cuh"
#include "kernels/attention/resident/forward/Memory.cuh"
#include "kernels/attention/resident/forward/Sequence.cuh"
#include "kernels/block/forward/Products.cuh"
#include "kernels/primitives/Instructions.cuh"
#include "kernels/primitives/Tile.cuh"

/// Phase A: copies a sequence's tokens to shared memory and replaces them by keys and values.
namespace adtrain::kernels::forward_pass {

/// Starts to copy this warp's warp tiles to the place of their keys. Rows beyond the last token repeat that
/// token, so that nothing infinite is multiplied by a weight of 0. Does nothing for a sequence that does not
/// exist.
template <class Block, int Width>
__device__ void start_tokens(const Sequence<Block, Width>& sequence) {
  constexpr int kChunks = Width / 8, kRows = kWarp / kChunks;  // of 16 bytes per row; at once
  const int tokens = sequence.job.shape.tokens;
  if (sequence.number >= sequence.job.shape.sequences) return;
  const int lane = threadIdx.x % kWarp, column = 8 * (lane % kChunks);
  const Bf16* x = sequence.rows(sequence.job.input(), false) + column;
#pragma unroll 1
  for (int first = kWarpTile * sequence.first_tile_of_warp(); first < tokens;
       first += kWarpTile * kGroupWarps) {
#pragma unroll
    for (int i = 0; i < kWarpTile; i += kRows) {
      const int row = first + i + lane / kChunks;
      start_copy(sequence.memory.keys.at(row, column), x + min(row, tokens - 1) * Width);
    }
  }
}

/// The lane's sum of squares in `Eights` · 8 columns, in its first row or, half = 1, its second.
template <int Eights>
__device__ float squares_of(const Sums* sums, int half) {
  float squares = 0.0f;
#pragma unroll
  for (int i = 0; i < Eights; ++i) {
    const float* value = sums[i].value + 2 * half;
    squares = fmaf(value[0], value[0], fmaf(value[1], value[1], squares));
  }
  return squares;
}

/// Stores keys or values in 16 rows from `row` on.
template <int Width>
__device__ void set_rows(Tile<Width> tile, int row, const Sums (&sums)[Width / 8], unsigned lane) {
#pragma unroll
  for (int i = 0; i < Width / 16; ++i) {
    set_left(tile, row, 16 * i, as_left(sums[2 * i], sums[2 * i + 1]), lane);
  }
}

/// Phase A for this warp's warp tiles, which start_tokens() has started to copy. Warps that multiply together
/// do so as often as the first of them.
template <int HeadSize, class Block, int Width>
__device__ __forceinline__ void project_keys_and_values(const Sequence<Block, Width>& sequence) {
  constexpr int kHeads = Width / HeadSize, kPart = std::min(HeadSize, 16);
  constexpr bool kTogether = kByWarpgroups<Width>;
  const Memory<Block, Width>& memory = sequence.memory;
  const unsigned lane = lane_anew();
  copies_arrived();
  __syncwarp();

  // For each part of a head: the greatest sum, over the rows of the warp tiles, of the squares in the lane's
  // columns.
  float longest[Width / kPart] = {};
  const int tokens = sequence.job.shape.tokens;
  const int ahead = kWarpTile * (sequence.warp % kWarpsTogether<Width>);  // of the first one's rows
#pragma unroll 1
  for (int first = kWarpTile * sequence.first_tile_of_warp() - ahead; first < tokens;
       first += kWarpTile * kGroupWarps) {
    const int row = first + ahead;
    const bool exists = row < tokens;
    Features<Width> x = {};
    if (exists) x = Features<Width>::loaded(memory.keys, row, lane);
    const typename Block::template Rotary<HeadSize> rotary(sequence.job, row, lane);
    Sums keys[Width / 8], values[Width / 8];
    start_third(keys, 1, x, memory, lane);
    if constexpr (kTogether) start_third(values, 2, x, memory, lane);
    await_projection<kTogether, 1>(keys);
    if (exists) {
      rotary.rotate(keys);
#pragma unroll
      for (int part = 0; part < Width / kPart; ++part) {
        const Sums* of_part = keys + part * (kPart / 8);
        float& most = longest[part];
        most = fmaxf(most, fmaxf(squares_of<kPart / 8>(of_part, 0), squares_of<kPart / 8>(of_part, 1)));
      }
      set_rows(memory.keys, row, keys, lane);
    }
    if constexpr (!kTogether) start_third(values, 2, x, memory, lane);
    await_projection<kTogether>(values);
    keep_until_here<kTogether>(x.step);
    if (exists) set_rows(memory.values, row, values, lane);
  }

  float of_lane = 0.0f;
#pragma unroll
  for (int head = 0; head < kHeads; ++head) {
    float sum = 0.0f;  // a sum of maxima, so at least the maximum of the sums
#pragma unroll
    for (int part = 0; part < HeadSize / kPart; ++part) {
      float most = longest[head * (HeadSize / kPart) + part];
#pragma unroll
      for (int other = 4; other < kWarp; other *= 2) {
        most = fmaxf(most, __shfl_xor_sync(kAllLanes, most, other));
      }
      sum += quad_sum(most);
    }
    if (lane == head) of_lane = sum;
  }
  if (lane < kHeads) {  // non-negative floats have the order of their bits
    atomicMax(reinterpret_cast<unsigned*>(sequence.longest() + lane), __float_as_uint(of_lane));
  }
}

}  // namespace adtrain::kernels::forward_pass
