#pragma once

#include "model/kernels/fused/BlockTensors.h"
#include "model/kernels/fused/block_forward/Features.cuh"
#include "model/kernels/fused/block_forward/Strips.cuh"
#include "model/kernels/gpu/Tile.cuh"

/// Shared memory, D = width, T = 256, the most tokens (that addresses are constants is worth more than room),
/// G = 2 groups; in all 226.9 of 227 KiB where D = 64. A pre-norm block has no linear1, linear2 and norms
/// here and takes 161.1 KiB.
///
///     in_proj  (3 D, D)  6 D² bytes              whole launch; columns in feature order
///     out_proj (D, D)    2 D² bytes              whole launch; rows in feature order
///     linear1  (4 D, D)  8 D² bytes              whole launch; columns in feature order
///     linear2  (D, 4 D)  8 D² bytes              whole launch; rows in feature order
///     keys     (T, D)    2 D T bytes, G of them  a sequence's x, once the sequence before has been read; its
///                                                keys, from A until its last query has read
///     values   (T, D)    2 D T bytes, G of them  from A until the last query has read
///     biases   (9 D)     36 D bytes, fp32        whole launch; pre-norm: (4 D)
///     norms    (4 D)     8 D bytes               whole launch: weights and biases of the norms
///     longest  (2, 8)    64 bytes, G of them     |key|² at most, by head: of this sequence, from A until its
///                                                last query has read; zeros for the next sequence
///
/// A is the phase that makes keys and values.
namespace adtrain::kernels::forward_pass {

constexpr int kMostHeads = 8;

/// Hands out shared memory, from `free` on.
struct FreeMemory {
  char* free;

  template <class Value>
  __device__ Value* take(int count) {
    char* taken = free;
    free += count * static_cast<int>(sizeof(Value));
    return reinterpret_cast<Value*>(taken);
  }
};

/// The kernel's shared memory as the warps of one group see it: the attention's, and what else the block has.
template <class Block, int Width>
struct Memory : Block::template OwnMemory<Width> {
  Tile<Width> in_proj, out_proj;
  Tile<Width> keys, values;
  float *in_proj_bias, *out_proj_bias;
  float* longest;  ///< (2, kMostHeads)

  static constexpr int bytes() { return kMatrices + kVectors + kGroups * (kLongest + 2 * kTokens); }

  __device__ Memory(char* start, int group)
      : Own(start + kAttentionMatrices, start + kMatrices + kGroups * 2 * kTokens + kAttentionVectors) {
    FreeMemory matrices = {start}, tokens = {start + kMatrices + group * 2 * kTokens};
    FreeMemory vectors = {start + kMatrices + kGroups * 2 * kTokens};
    in_proj = {matrices.take<Bf16>(3 * Width * Width)};
    out_proj = {matrices.take<Bf16>(Width * Width)};
    keys = {tokens.take<Bf16>(kMostTokens * Width)};
    values = {tokens.take<Bf16>(kMostTokens * Width)};
    in_proj_bias = vectors.take<float>(3 * Width);
    out_proj_bias = vectors.take<float>(Width);
    vectors.free += Own::kVectors + group * kLongest;
    longest = vectors.take<float>(2 * kMostHeads);
  }

 private:
  using Own = typename Block::template OwnMemory<Width>;
  static constexpr int kAttentionMatrices = Tile<Width>::bytes(4 * Width);
  static constexpr int kAttentionVectors = 4 * Width * static_cast<int>(sizeof(float));
  static constexpr int kMatrices = kAttentionMatrices + Own::kMatrices;
  static constexpr int kVectors = kAttentionVectors + Own::kVectors;
  static constexpr int kTokens = Tile<Width>::bytes(kMostTokens);
  static constexpr int kLongest = 2 * kMostHeads * static_cast<int>(sizeof(float));
};

/// Rows of a matrix stand where they come from.
struct SameRow {
  __device__ int operator()(int row) const { return row; }
};

/// `place_of`: where a row of `from` is to stand.
template <int Width, class Place = SameRow>
__device__ void copy_in_feature_order_of_columns(Tile<Width> tile, const Bf16* from, int rows,
                                                 Place place_of = {}) {
  for (int chunk = threadIdx.x; chunk < rows * (Width / 8); chunk += blockDim.x) {
    const int row = place_of(chunk / (Width / 8)), column = feature_order(8 * (chunk % (Width / 8)));
    const uint4 pairs = *reinterpret_cast<const uint4*>(from + 8 * chunk);
    tile.set_pair(row, column, pairs.x);
    tile.set_pair(row, column + 8, pairs.y);
    tile.set_pair(row, column + 16, pairs.z);
    tile.set_pair(row, column + 24, pairs.w);
  }
}
template <int Columns>
__device__ void copy_in_feature_order_of_rows(Tile<Columns> tile, const Bf16* from, int rows) {
  for (int chunk = threadIdx.x; chunk < rows * (Columns / 8); chunk += blockDim.x) {
    const int row = chunk / (Columns / 8), column = 8 * (chunk % (Columns / 8));
    start_copy(tile.at(feature_order(row), column), from + 8 * chunk);
  }
}
template <class To, class Place = SameRow>
__device__ void copy_vector(To* to, const Bf16* from, int size, Place place_of = {}) {
  for (int i = threadIdx.x; i < size; i += blockDim.x) to[place_of(i)] = from[i];
}

}  // namespace adtrain::kernels::forward_pass
