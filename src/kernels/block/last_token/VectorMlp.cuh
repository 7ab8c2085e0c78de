#pragma once

#include "kernels/block/last_token/Group.cuh"
#include "kernels/primitives/Tile.cuh"

/// The MLP of a thread block's few tokens, of one row for each group. Its warps keep all of its weights in
/// registers for the whole launch: they are read from memory once, as 16 bytes of a row by each lane.
namespace adtrain::kernels::last_token {

/// One vector for each group, in two parts (see SplitVector.cuh): the eight columns of a right operand.
template <int Size>
struct alignas(16) GroupVectors {
  Bf16 part[2 * kGroups][Size + 8];  ///< the stride avoids bank conflicts

  __device__ void set(int group, int i, float value) {
    const Bf16 rounded = __float2bfloat16(value);
    part[2 * group][i] = rounded;
    part[2 * group + 1][i] = __float2bfloat16(value - __bfloat162float(rounded));
  }
};

/// 16 rows × `Columns` columns of a matrix as left operands. A product may sum in any order, so that a lane
/// has neighbouring columns.
template <int Columns>
class RowsInRegisters {
 public:
  /// `from`: the first of these elements; `stride`: of the matrix's rows.
  __device__ void load(const Bf16* from, int stride) {
    const LanePlace lane = lane_place();
#pragma unroll
    for (int lower = 0; lower < 2; ++lower) {
#pragma unroll
      for (int i = 0; i < kWords; i += 4) {
        const uint4 words = __ldg(reinterpret_cast<const uint4*>(from + (lane.row + 8 * lower) * stride +
                                                                 kOfLane / 2 * lane.column + 2 * i));
        words_[lower][i] = words.x, words_[lower][i + 1] = words.y;
        words_[lower][i + 2] = words.z, words_[lower][i + 3] = words.w;
      }
    }
  }

  /// Their product with the vectors' elements from `first` on. The lane's sums are of group lane % 4: in its
  /// first row and in that 8 further.
  template <int Size>
  __device__ float2 times(const GroupVectors<Size>& vectors, int first) const {
    const LanePlace lane = lane_place();
    const Bf16* column = vectors.part[lane.row] + first + kOfLane / 2 * lane.column;
    Sums sums = no_sums();
#pragma unroll
    for (int i = 0; i < kWords; i += 2) {
      const uint2 right = *reinterpret_cast<const uint2*>(column + 2 * i);
      multiply_add(sums, {{words_[0][i], words_[1][i], words_[0][i + 1], words_[1][i + 1]}}, right.x,
                   right.y);
    }
    return {sums.value[0] + sums.value[1], sums.value[2] + sums.value[3]};
  }

 private:
  static constexpr int kOfLane = Columns / 4, kWords = kOfLane / 2;
  uint32_t words_[2][kWords];
};

template <int Width>
struct MlpMemory {
  GroupVectors<Width> x1;
  GroupVectors<4 * Width> hidden;
  float outputs[4][kGroups][Width];  ///< of a fourth of the hidden units each
};

/// linear1 and linear2 without their biases.
template <int Width>
class VectorMlp {
 public:
  __device__ void load(const Bf16* linear1, const Bf16* linear2) {
    if (!has_rows()) return;
    linear1_.load(linear1 + hidden_row() * Width, Width);
    linear2_.load(linear2 + output_row() * 4 * Width + fourth() * Width, 4 * Width);
  }

  /// The first hidden unit of the warp.
  __device__ static int hidden_row() { return warp() * kWarpTile; }

  /// Calls take(group, row, product of linear1 and x1) for all rows.
  template <class Take>
  __device__ void hidden(const MlpMemory<Width>& memory, const Take& take) const {
    if (!has_rows()) return;
    const LanePlace lane = lane_place();
    const float2 products = linear1_.times(memory.x1, 0);
    take(lane.column / 2, hidden_row() + lane.row, products.x);
    take(lane.column / 2, hidden_row() + lane.row + 8, products.y);
  }

  /// Writes the outputs.
  __device__ void output(MlpMemory<Width>& memory) const {
    if (!has_rows()) return;
    const LanePlace lane = lane_place();
    const float2 products = linear2_.times(memory.hidden, fourth() * Width);
    float* to = memory.outputs[fourth()][lane.column / 2] + output_row() + lane.row;
    to[0] = products.x;
    to[8] = products.y;
  }

 private:
  static constexpr int kRowTiles = Width / kWarpTile;

  __device__ static int warp() { return threadIdx.x / kWarp; }
  __device__ static bool has_rows() { return warp() < 4 * kRowTiles; }
  __device__ static int output_row() { return warp() % kRowTiles * kWarpTile; }
  __device__ static int fourth() { return warp() / kRowTiles; }

  RowsInRegisters<Width> linear1_, linear2_;
};
static_assert(kBlockThreads / kWarp == 4 * 64 / kWarpTile, "a warp has one tile of rows of each matrix");

}  // namespace adtrain::kernels::last_token
