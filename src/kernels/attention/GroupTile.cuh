#pragma once

#include "kernels/attention/MultiheadAttention.h"
#include "kernels/primitives/Instructions.cuh"
#include "kernels/primitives/ShortType.cuh"
#include "kernels/primitives/Tile.cuh"

/// Copies of a group of heads' columns to shared memory, a row in four chunks of 8 columns. A thread may
/// change the chunks that it has copied itself before other threads read them.
namespace adtrain::kernels {

using GroupTile = Tile<kGroupColumns>;
constexpr int kGroupChunks = kGroupColumns / 8;

/// The heads that a thread block works on.
template <int HeadSize>
struct HeadGroup {
  static constexpr int kHeads = kGroupColumns / HeadSize;

  int sequence;
  int first_head;

  /// The heads of thread block `block`. The blocks go through the groups of each sequence in order.
  static __device__ HeadGroup of(const BlockShape& shape, int block) {
    const int groups = shape.width / kGroupColumns;
    return {block / groups, block % groups * kHeads};
  }
  /// The first head's number among the heads of all sequences.
  __device__ int number(const BlockShape& shape) const { return sequence * shape.heads + first_head; }

  /// The address of a row's elements, from a column of the group to the end of that column's head.
  template <class Value>
  __device__ Value* at(const HeadMatrix<Value>& matrix, int row, int column) const {
    return matrix.at(sequence, row, first_head + column / HeadSize) + column % HeadSize;
  }
};

/// A thread's chunk of a tile.
struct Chunk {
  int row, column;

  /// Calls take(chunk) for the chunks of `warp_tiles` warp tiles of 16 rows, which are divided among the
  /// block's threads. All lanes of a warp take part together.
  template <class Do>
  static __device__ void for_each(int warp_tiles, Do&& take) {
#pragma unroll 4
    for (int i = threadIdx.x; i < warp_tiles * kWarpTile * kGroupChunks; i += blockDim.x) {
      take(Chunk{i / kGroupChunks, 8 * (i % kGroupChunks)});
    }
  }
};

/// Starts to copy rows [begin, end) of the tile, whose row 0 is the matrix's row `first`. The other rows of
/// the warp tiles are cleared.
template <int HeadSize>
__device__ void start_copy(GroupTile tile, int warp_tiles, const HeadMatrix<const Bf16>& matrix,
                           const HeadGroup<HeadSize>& group, int first, int begin, int end) {
  Chunk::for_each(warp_tiles, [&](Chunk chunk) {
    const bool exists = chunk.row >= begin && chunk.row < end;
    const Bf16* from = group.at(matrix, first + (exists ? chunk.row : begin), chunk.column);
    start_copy_or_clear(tile.at(chunk.row, chunk.column), from, exists);
  });
}

/// The values of a chunk in fp32.
struct ChunkValues {
  float at[8];

  template <class Short = __nv_bfloat16>
  static __device__ ChunkValues of(const uint4& pairs) {
    const float2 twos[4] = {unpacked<Short>(pairs.x), unpacked<Short>(pairs.y), unpacked<Short>(pairs.z),
                            unpacked<Short>(pairs.w)};
    return {{twos[0].x, twos[0].y, twos[1].x, twos[1].y, twos[2].x, twos[2].y, twos[3].x, twos[3].y}};
  }
  template <class Short = __nv_bfloat16>
  __device__ uint4 rounded() const {
    return {packed<Short>(at[0], at[1]), packed<Short>(at[2], at[3]), packed<Short>(at[4], at[5]),
            packed<Short>(at[6], at[7])};
  }

  __device__ float product_with(const ChunkValues& other) const {
    float sum = 0.0f;
#pragma unroll
    for (int i = 0; i < 8; ++i) sum = fmaf(at[i], other.at[i], sum);
    return sum;
  }
  __device__ void multiply_by(float scale) {
#pragma unroll
    for (float& value : at) value *= scale;
  }

  /// Rotates by the angles of `token`, as RopeAngles does. Other lanes of the same row hold the other
  /// features of its pairs. Cosines and sines are (tokens, HeadSize / 2).
  template <int HeadSize>
  __device__ void rotate(const float* cosines, const float* sines, int token, int column) {
    constexpr int kHalf = HeadSize / 2, kApart = HeadSize / 16;  // in lanes, between the features of a pair
    const int angle = token * kHalf + column % kHalf;
    if constexpr (HeadSize == 8) {
#pragma unroll
      for (int i = 0; i < kHalf; ++i) {
        const float cosine = cosines[angle + i], sine = sines[angle + i], before = at[i];
        at[i] = fmaf(before, cosine, -at[i + kHalf] * sine);
        at[i + kHalf] = fmaf(at[i + kHalf], cosine, before * sine);
      }
    } else {
      const float sign = column % HeadSize < kHalf ? -1.0f : 1.0f;
#pragma unroll
      for (int i = 0; i < 8; ++i) {
        const float other = __shfl_xor_sync(kAllLanes, at[i], kApart);
        at[i] = fmaf(at[i], cosines[angle + i], sign * other * sines[angle + i]);
      }
    }
  }
};

/// The sum over the lanes that share a head's row.
template <int HeadSize>
__device__ float head_sum(float value) {
#pragma unroll
  for (int apart = 1; apart < HeadSize / 8; apart *= 2) value += __shfl_xor_sync(kAllLanes, value, apart);
  return value;
}

}  // namespace adtrain::kernels
