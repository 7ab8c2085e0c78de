#pragma once

#include "model/kernels/fused/BlockTensors.h"
#include "model/kernels/fused/Tile.cuh"
#include "model/kernels/fused/block_forward/Features.cuh"
#include "model/kernels/fused/block_forward/Strips.cuh"

/// Shared memory, D = width, T = 256, the most tokens (that addresses are constants is worth more than room),
/// G = 2 groups; in all 226.9 of 227 KiB where D = 64:
///
///     in_proj  (3 D, D)  6 D² bytes              whole launch; columns in feature order
///     out_proj (D, D)    2 D² bytes              whole launch; rows in feature order
///     linear1  (4 D, D)  8 D² bytes              whole launch; columns in feature order
///     linear2  (D, 4 D)  8 D² bytes              whole launch; rows in feature order
///     keys     (T, D)    2 D T bytes, G of them  a sequence's x, once the sequence before has been read; its
///                                                keys, from A until its last query has read
///     values   (T, D)    2 D T bytes, G of them  from A until the last query has read
///     biases   (9 D)     36 D bytes, fp32        whole launch
///     norms    (4 D)     8 D bytes               whole launch: weights and biases of the norms
///     longest  (2, 8)    64 bytes, G of them     |key|² at most, by head: of this sequence, from A until its
///                                                last query has read; zeros for the next sequence
///
/// A is the phase that makes keys and values.
namespace adtrain::kernels::forward_pass {

constexpr int kMostHeads = 8;
constexpr int kMostTokens = 256;

/// The kernel's shared memory as the warps of one group see it.
template <int Width>
struct Memory {
  Tile<Width> in_proj, out_proj, linear1;
  Tile<4 * Width> linear2;
  Tile<Width> keys, values;
  float *in_proj_bias, *out_proj_bias, *linear1_bias, *linear2_bias;
  Bf16 *norm1_weight, *norm1_bias, *norm2_weight, *norm2_bias;
  float* longest;  ///< (2, kMostHeads)

  static constexpr int bytes() { return kWeights + kVectors + kGroups * (kLongest + 2 * kTokens); }

  __device__ Memory(char* start, int group) {
    char* free = start;
    const auto take = [&](int bytes) {
      char* taken = free;
      free += bytes;
      return taken;
    };
    const auto take_tile = [&](int bytes) { return reinterpret_cast<Bf16*>(take(bytes)); };
    in_proj = {take_tile(Tile<Width>::bytes(3 * Width))};
    out_proj = {take_tile(Tile<Width>::bytes(Width))};
    linear1 = {take_tile(Tile<Width>::bytes(4 * Width))};
    linear2 = {take_tile(Tile<4 * Width>::bytes(Width))};
    free += group * 2 * kTokens;
    keys = {take_tile(kTokens)};
    values = {take_tile(kTokens)};
    free = start + kWeights + kGroups * 2 * kTokens;
    in_proj_bias = reinterpret_cast<float*>(take(3 * kFloats));
    out_proj_bias = reinterpret_cast<float*>(take(kFloats));
    linear1_bias = reinterpret_cast<float*>(take(4 * kFloats));
    linear2_bias = reinterpret_cast<float*>(take(kFloats));
    norm1_weight = reinterpret_cast<Bf16*>(take(kFloats / 2));
    norm1_bias = reinterpret_cast<Bf16*>(take(kFloats / 2));
    norm2_weight = reinterpret_cast<Bf16*>(take(kFloats / 2));
    norm2_bias = reinterpret_cast<Bf16*>(take(kFloats / 2));
    longest = reinterpret_cast<float*>(free + group * kLongest);
  }

 private:
  static constexpr int kFloats = Width * static_cast<int>(sizeof(float));
  static constexpr int kWeights = Tile<Width>::bytes(12 * Width), kVectors = 9 * kFloats + 4 * kFloats / 2;
  static constexpr int kTokens = Tile<Width>::bytes(kMostTokens);
  static constexpr int kLongest = 2 * kMostHeads * static_cast<int>(sizeof(float));
};
static_assert(Memory<64>::bytes() <= 227 * 1024, "a thread block's shared memory");

template <int Width>
__device__ void copy_in_feature_order_of_columns(Tile<Width> tile, const Bf16* from, int rows) {
  for (int chunk = threadIdx.x; chunk < rows * (Width / 8); chunk += blockDim.x) {
    const int row = chunk / (Width / 8), column = feature_order(8 * (chunk % (Width / 8)));
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
template <class To>
__device__ void copy_vector(To* to, const Bf16* from, int size) {
  for (int i = threadIdx.x; i < size; i += blockDim.x) to[i] = from[i];
}

/// By all threads, for all of them.
template <int Width>
__device__ void copy_weights(const Memory<Width>& memory, const BlockWeights& from) {
  copy_in_feature_order_of_rows(memory.out_proj, from.out_proj_weight, Width);
  copy_in_feature_order_of_rows(memory.linear2, from.linear2_weight, Width);
  copy_in_feature_order_of_columns(memory.in_proj, from.in_proj_weight, 3 * Width);
  copy_in_feature_order_of_columns(memory.linear1, from.linear1_weight, 4 * Width);
  copy_vector(memory.in_proj_bias, from.in_proj_bias, 3 * Width);
  copy_vector(memory.out_proj_bias, from.out_proj_bias, Width);
  copy_vector(memory.linear1_bias, from.linear1_bias, 4 * Width);
  copy_vector(memory.linear2_bias, from.linear2_bias, Width);
  copy_vector(memory.norm1_weight, from.norm1_weight, Width);
  copy_vector(memory.norm1_bias, from.norm1_bias, Width);
  copy_vector(memory.norm2_weight, from.norm2_weight, Width);
  copy_vector(memory.norm2_bias, from.norm2_bias, Width);
}

}  // namespace adtrain::kernels::forward_pass
