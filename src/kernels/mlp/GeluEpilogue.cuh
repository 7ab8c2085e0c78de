#pragma once

#include <cstdint>

#include <cuda_runtime.h>
#include <cute/tensor.hpp>

#include "kernels/mlp/GeluProducts.h"
#include "kernels/mlp/GeluValues.cuh"
#include "kernels/mlp/StoredRows.cuh"
#include "kernels/mlp/StoredSlopes.cuh"
#include "kernels/primitives/ShortType.cuh"
#include "kernels/primitives/TensorMap.h"
#include "kernels/primitives/Tile.cuh"

namespace adtrain::kernels {

/// The epilogue of GeluProduct, of a tile by one warpgroup. What is read from memory for a tile is on its way
/// from `begin` on, while the tile is multiplied. The bits of the lane's four rows are loaded by its quad, a
/// row each.
template <class Short, GeluKind kKind, bool kDrops>
class GeluEpilogue {
 public:
  struct Call {
    int rows, columns;     ///< of the results
    const uint32_t* bias;  ///< pairs of 16-bit numbers, columns / 2
    const uint8_t* keep;   ///< dropout's bits, as in GeluProduct; null where nothing is dropped
    float half_scale;      ///< half of what elements that are kept are multiplied by
    float inverse_unit;    ///< of StoredSlopes
    void* slopes;
    TensorMap y;
  };
  /// Of a warpgroup.
  struct Memory {
    StoredRows::Part y[kGeluTileWarps];
  };

  __device__ GeluEpilogue(const Call& call, Memory& memory, int warp, int lane)
      : call_(call), y_(call.y, memory.y[warp], lane), warp_(warp), lane_(lane) {}

  /// The tile whose sums will be stored next.
  __device__ void begin(int tile_row, int tile_column) {
    tile_row_ = tile_row, tile_column_ = tile_column;
    const int first_column = tile_column * kGeluTileColumns;
#pragma unroll
    for (int block = 0; block < kBlocks; ++block) {
      const int own = first_column + block * 8 + lane_ % kQuad * 2;
      bias_[block] = own < call_.columns ? __ldg(call_.bias + own / 2) : 0;
    }
    if constexpr (kDrops) {
      const int loaded = lane_ % kQuad, own = row() + lane_ / kQuad + loaded / 2 * kPart + loaded % 2 * 8;
      uint4 bits = {};
      if (own < call_.rows) {
        const int64_t byte = (int64_t{own} * call_.columns + first_column) / 8;
        bits = __ldg(reinterpret_cast<const uint4*>(call_.keep + byte));
      }
      kept_[0] = bits.x, kept_[1] = bits.y, kept_[2] = bits.z, kept_[3] = bits.w;
    }
  }

  /// `sums`: the lane's accumulators ((2, 2, kBlocks), 2, 1): columns of a pair, rows, blocks of 8 columns;
  /// parts of 64 rows.
  template <class Sums>
  __device__ void store(const Sums& sums) {
    const StoredSlopes<Short> slopes(call_.slopes, tile_row_, tile_column_, call_.columns,
                                     warp_ * kWarp + lane_);
#pragma unroll
    for (int part_row = 0; part_row < kGeluTileRows / kPart; ++part_row) {
#pragma unroll
      for (int part_column = 0; part_column < kGeluTileColumns / kPart; ++part_column) {
        store_part(sums, part_row, part_column, slopes);
      }
    }
  }

  __device__ void finish() const {
    y_.finish();
  }

 private:
  static constexpr int kQuad = 4, kPart = StoredRows::kColumns, kBlocks = kGeluTileColumns / 8,
                       kPartBlocks = StoredRows::kBlocks;
  static_assert(kGeluTileRows == 128 && kGeluTileColumns == 128, "a row's bits are one load of a lane's");

  /// The warp's first one.
  __device__ int row() const {
    return tile_row_ * kGeluTileRows + warp_ * StoredRows::kRows;
  }

  template <class Sums>
  __device__ void store_part(const Sums& sums, int part_row, int part_column,
                             const StoredSlopes<Short>& slopes) {
    uint32_t words[2][2] = {};  // of the lane's rows, shifted so that an element's bit is a constant's
    if constexpr (kDrops) {
#pragma unroll
      for (int row = 0; row < 2; ++row) {
#pragma unroll
        for (int word = 0; word < 2; ++word) {
          words[row][word] =
              __shfl_sync(kAllLanes, kept_[part_column * 2 + word], part_row * 2 + row, kQuad) >>
              lane_ % kQuad * 2;
        }
      }
    }
    uint32_t y[kPartBlocks][2];
    typename StoredSlopes<Short>::Part stored;
#pragma unroll
    for (int block = 0; block < kPartBlocks; ++block) {
      const float2 bias = unpacked<Short>(bias_[part_column * kPartBlocks + block]);
      float slope_of[2][2];
#pragma unroll
      for (int row = 0; row < 2; ++row) {
        float y_of[2];
#pragma unroll
        for (int i = 0; i < 2; ++i) {
          const float x = sums(cute::make_coord(i, row, part_column * kPartBlocks + block), part_row, 0) +
                          (i == 0 ? bias.x : bias.y);
          float half = 0.5F;
          if constexpr (kDrops)
            half = (words[row][block / 4] >> (block % 4 * 8 + i) & 1U) != 0 ? call_.half_scale : 0.0F;
          const GeluForm<kKind> gelu(x);
          const float phi = gelu.phi(half);
          y_of[i] = x * phi;
          slope_of[row][i] = gelu.slope(x, phi);
        }
        y[block][row] = packed<Short>(y_of[0], y_of[1]);
      }
      StoredSlopes<Short>::put(stored, block, slope_of, call_.inverse_unit);
    }
    slopes.store(part_row * 2 + part_column, stored);
    y_.store(y, row() + part_row * kPart, tile_column_ * kGeluTileColumns + part_column * kPart);
  }

  const Call& call_;
  StoredRows y_;
  int warp_, lane_;
  int tile_row_ = 0, tile_column_ = 0;
  uint32_t bias_[kBlocks];
  uint32_t kept_[4];  ///< of the whole tile's columns
};

}  // namespace adtrain::kernels
