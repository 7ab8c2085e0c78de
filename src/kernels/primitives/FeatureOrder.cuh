#pragma once

#include "kernels/primitives/Instructions.cuh"
#include "kernels/primitives/Tile.cuh"

/// The order of the residual stream's features in fragments, and copies to shared memory in that order.
///
/// In a fragment a lane holds pairs of neighbouring columns, 8 apart. In the order of memory, 16 bytes of a
/// row would therefore belong to four lanes. So the residual stream's features have another order in
/// fragments: of each 32 neighbouring features, the lane with columns 2 q and 2 q + 1 of each 8 holds
/// features 8 q … 8 q + 7. It loads or stores them with one access, and the four lanes of a row access 64
/// contiguous bytes. A product may sum over the features in any order.
namespace adtrain::kernels {

/// Maps a feature of the residual stream to its column in fragments, and a column to its feature: pairs are
/// exchanged as in the transpose of a 4 × 4 matrix.
__device__ constexpr int feature_order(int feature) {
  return (feature & ~30) | (feature & 6) << 2 | (feature >> 2 & 6);
}

/// The index, in a vector over the features, of the lane's pair in the columns 8 · eight … 8 · eight + 7.
__device__ inline int feature_of_lane(unsigned lane, int eight) {
  return 32 * (eight / 4) + 4 * lane_place(lane).column + 2 * (eight % 4);
}

/// Allocates shared memory from `free` on.
struct FreeMemory {
  char* free;

  template <class Value>
  __device__ Value* take(int count) {
    char* taken = free;
    free += count * static_cast<int>(sizeof(Value));
    return reinterpret_cast<Value*>(taken);
  }
};

/// Each row keeps its index.
struct SameRow {
  __device__ int operator()(int row) const { return row; }
};

/// `place_of` maps a row of `from` to its row in the tile.
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
/// `row_size`: the distance between rows of `from`, where the tile has some of their columns.
template <int Columns>
__device__ void copy_in_feature_order_of_rows(Tile<Columns> tile, const Bf16* from, int rows,
                                              int row_size = Columns) {
  for (int chunk = threadIdx.x; chunk < rows * (Columns / 8); chunk += blockDim.x) {
    const int row = chunk / (Columns / 8), column = 8 * (chunk % (Columns / 8));
    start_copy(tile.at(feature_order(row), column), from + row * row_size + column);
  }
}
template <class To, class Place = SameRow>
__device__ void copy_vector(To* to, const Bf16* from, int size, Place place_of = {}) {
  for (int i = threadIdx.x; i < size; i += blockDim.x) to[place_of(i)] = from[i];
}

}  // namespace adtrain::kernels
