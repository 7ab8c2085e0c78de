#pragma once

#include <cstdint>

#include <cuda_runtime.h>
#include <cute/arch/copy_sm90.hpp>
#include <cute/arch/copy_sm90_tma.hpp>

#include "kernels/mlp/GeluProducts.h"
#include "kernels/mlp/GeluValues.cuh"
#include "kernels/primitives/ShortType.cuh"
#include "kernels/primitives/TensorMap.h"
#include "kernels/primitives/Tile.cuh"

namespace adtrain::kernels {

/// What an epilogue reads beside the product's sums, and where it stores its results.
struct GeluEpilogueCall {
  int rows, columns;     ///< of the results
  const uint32_t* bias;  ///< pairs of 16-bit numbers, columns / 2
  const uint8_t* keep;   ///< dropout's bits, as in GeluProduct; null where nothing is dropped
  float half_scale;      ///< half of what elements that are kept are multiplied by
  TensorMap y, slope;    ///< of the results, in boxes of GeluEpilogue::kPartRows rows
};

/// The epilogue of a tile of kGeluTileRows × kGeluTileColumns by one warpgroup, in parts of 64 × 64 elements.
/// Each warp has 16 rows of a part, and stores them by itself: through shared memory, from which bulk copies
/// take them while the warp works on. So no warp waits for another one.
///
/// As for operands of the tensor cores, a lane has two neighbouring columns of each 8, of two rows eight
/// apart. What is read from memory for a tile is on its way from `begin` on, while the tile is multiplied.
/// The bits of the lane's four rows are loaded by its quad, a row each.
template <class Short, bool kDrops>
class GeluEpilogue {
 public:
  static constexpr int kPartRows = 16, kPart = 64, kChunks = 8;
  /// 16 rows of a part of one result, as bulk copies with a swizzle of 128 bytes expect them.
  struct alignas(1024) Rows {
    cute::uint128_t chunks[kPartRows][kChunks];
  };
  /// Of a warp: one part of both results.
  struct Memory {
    Rows y, slope;
  };

  __device__ GeluEpilogue(const GeluEpilogueCall& call, Memory& memory, int warp, int lane)
      : call_(call), memory_(memory), warp_(warp), lane_(lane) {}

  /// The tile whose sums will be stored next: its first row and column.
  __device__ void begin(int row, int column) {
    row_ = row + warp_ * kPartRows;
    column_ = column;
#pragma unroll
    for (int block = 0; block < kBlocks; ++block) {
      const int own = column_ + block * 8 + lane_ % kQuad * 2;
      bias_[block] = own < call_.columns ? __ldg(call_.bias + own / 2) : 0;
    }
    if constexpr (kDrops) {
      const int loaded = lane_ % kQuad, own = row_ + lane_ / kQuad + loaded / 2 * kPart + loaded % 2 * 8;
      uint4 bits = {};
      if (own < call_.rows) {
        const int64_t byte = (int64_t{own} * call_.columns + column_) / 8;
        bits = __ldg(reinterpret_cast<const uint4*>(call_.keep + byte));
      }
      kept_[0] = bits.x, kept_[1] = bits.y, kept_[2] = bits.z, kept_[3] = bits.w;
    }
  }

  /// `sums`: the lane's accumulators ((2, 2, kBlocks), 2, 1): columns of a pair, rows, blocks of 8 columns;
  /// parts of 64 rows.
  template <class Sums>
  __device__ void store(const Sums& sums) {
#pragma unroll
    for (int part_row = 0; part_row < kGeluTileRows / kPart; ++part_row) {
#pragma unroll
      for (int part_column = 0; part_column < kGeluTileColumns / kPart; ++part_column) {
        store_part(sums, part_row, part_column);
      }
    }
  }

  /// Waits until the results have been read from shared memory.
  __device__ void finish() {
    if (lane_ == 0) cute::tma_store_wait<0>();
  }

 private:
  static constexpr int kQuad = 4, kBlocks = kGeluTileColumns / 8, kPartBlocks = kPart / 8;
  static_assert(kGeluTileRows == 128 && kGeluTileColumns == 128, "a row's bits are one load of a lane's");

  template <class Sums>
  __device__ void store_part(const Sums& sums, int part_row, int part_column) {
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
    uint32_t y[kPartBlocks][2], slope[kPartBlocks][2];
#pragma unroll
    for (int block = 0; block < kPartBlocks; ++block) {
      const float2 bias = unpacked<Short>(bias_[part_column * kPartBlocks + block]);
#pragma unroll
      for (int row = 0; row < 2; ++row) {
        float y_of[2], slope_of[2];
#pragma unroll
        for (int i = 0; i < 2; ++i) {
          const float x = sums(cute::make_coord(i, row, part_column * kPartBlocks + block), part_row, 0) +
                          (i == 0 ? bias.x : bias.y);
          float half = 0.5F;
          if constexpr (kDrops)
            half = (words[row][block / 4] >> (block % 4 * 8 + i) & 1U) != 0 ? call_.half_scale : 0.0F;
          const GeluForm gelu(x);
          const float phi = gelu.phi(half);
          y_of[i] = x * phi;
          slope_of[i] = gelu.slope(x, phi);
        }
        y[block][row] = packed<Short>(y_of[0], y_of[1]);
        slope[block][row] = packed<Short>(slope_of[0], slope_of[1]);
      }
    }
    if (lane_ == 0) cute::tma_store_wait<0>();  // the part before has been read
    __syncwarp();
    fill(memory_.y, y);
    fill(memory_.slope, slope);
    cute::tma_store_fence();
    __syncwarp();
    if (lane_ == 0) {
      const int byte = (column_ + part_column * kPart) * static_cast<int>(sizeof(Short)),
                row = row_ + part_row * kPart;
      cute::SM90_TMA_STORE_2D::copy(&call_.y, &memory_.y, byte, row);
      cute::SM90_TMA_STORE_2D::copy(&call_.slope, &memory_.slope, byte, row);
      cute::tma_store_arrive();
    }
  }

  /// Four matrices of 8 × 8 at once: two of rows beside two of columns.
  __device__ void fill(Rows& to, const uint32_t (&pairs)[kPartBlocks][2]) const {
    const int matrix = lane_ / 8, row = lane_ % 8 + matrix % 2 * 8;
#pragma unroll
    for (int block = 0; block < kPartBlocks; block += 2) {
      cute::SM90_U32x4_STSM_N::copy(pairs[block][0], pairs[block][1], pairs[block + 1][0],
                                    pairs[block + 1][1], to.chunks[row][(block + matrix / 2) ^ row % 8]);
    }
  }

  const GeluEpilogueCall& call_;
  Memory& memory_;
  int warp_, lane_;
  int row_ = 0, column_ = 0;  ///< the warp's first row in the tile, and the tile's first column
  uint32_t bias_[kBlocks];
  uint32_t kept_[4];  ///< of the whole tile's columns
};

}  // namespace adtrain::kernels
