#pragma once

#include <algorithm>

#include "kernels/attention/resident/forward/Features.cuh"
#include "kernels/attention/resident/forward/Memory.cuh"
#include "kernels/attention/resident/forward/Sequence.cuh"
#include "kernels/primitives/Instructions.cuh"
#include "kernels/primitives/Tile.cuh"

/// Phase A: a sequence's tokens come to shared memory, and become keys and values there.
namespace adtrain::kernels::forward_pass {

/// Starts to copy the warp tiles of this warp to where their keys will stand. Rows beyond the last token
/// repeat it, so that nothing that is multiplied by a weight of 0 is infinite. Of a sequence that there is
/// not, nothing.
template <class Block, int Width>
__device__ void start_tokens(const Sequence<Block, Width>& sequence) {
  constexpr int kChunks = Width / 8, kRows = kWarp / kChunks;  // of 16 bytes in a row; at once
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

/// Of `Eights` · 8 columns, the lane's in its first row or, half = 1, its second.
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

/// Phase A for the warp tiles of this warp, which start_tokens() has started to copy.
template <int HeadSize, class Block, int Width>
__device__ void project_keys_and_values(const Sequence<Block, Width>& sequence) {
  constexpr int kHeads = Width / HeadSize, kPart = std::min(HeadSize, 16);
  const Memory<Block, Width>& memory = sequence.memory;
  const unsigned lane = lane_anew();
  copies_arrived();
  __syncwarp();

  // Over the warp tiles, the greatest sum of squares over those columns of a part of a head that are the
  // lane's.
  float longest[Width / kPart] = {};
#pragma unroll 1
  for (int row = kWarpTile * sequence.first_tile_of_warp(); row < sequence.job.shape.tokens;
       row += kWarpTile * kGroupWarps) {
    const auto x = Features<Width>::loaded(memory.keys, row, lane);
    const typename Block::template Rotary<HeadSize> rotary(sequence.job, row, lane);
#pragma unroll
    for (int third = 1; third < 3; ++third) {
#pragma unroll
      for (int column = 0; column < Width; column += 32) {  // enough for no product to wait for the last
        const int out = third * Width + column;
        Sums sums[4];
#pragma unroll
        for (int i = 0; i < 4; ++i) {
          sums[i] = sums_from(memory.in_proj_bias + out + 8 * i + lane_place(lane).column);
        }
#pragma unroll
        for (int step = 0; step < Width / 16; ++step) {
          if (step % 2 == 0) __syncwarp();  // or the compiler loads ahead more than there are registers for
#pragma unroll
          for (int i = 0; i < 2; ++i) {
            multiply_add(sums[2 * i], sums[2 * i + 1], x.step[step],
                         right_of_transposed(memory.in_proj, out + 16 * i, 16 * step, lane));
          }
        }
        if (third == 1) {
          rotary.rotate(sums);
#pragma unroll
          for (int part = 0; part < 32 / kPart; ++part) {
            const Sums* of_part = sums + part * (kPart / 8);
            float& most = longest[column / kPart + part];
            most = fmaxf(most, fmaxf(squares_of<kPart / 8>(of_part, 0), squares_of<kPart / 8>(of_part, 1)));
          }
        }
#pragma unroll
        for (int i = 0; i < 2; ++i) {
          set_left(third == 1 ? memory.keys : memory.values, row, column + 16 * i,
                   as_left(sums[2 * i], sums[2 * i + 1]), lane);
        }
      }
    }
  }

  float of_lane = 0.0f;
#pragma unroll
  for (int head = 0; head < kHeads; ++head) {
    float sum = 0.0f;  // of maxima, so at least the maximum of sums
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
  if (lane < kHeads) {  // floats that are not negative are in the order of their bits
    atomicMax(reinterpret_cast<unsigned*>(sequence.longest() + lane), __float_as_uint(of_lane));
  }
}

}  // namespace adtrain::kernels::forward_pass
