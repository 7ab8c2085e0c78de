#pragma once

#include <cstdint>

#include <cuda_runtime.h>
#include <cute/arch/copy_sm90.hpp>
#include <cute/arch/copy_sm90_tma.hpp>

#include "kernels/primitives/TensorMap.h"
#include "kernels/primitives/Tile.cuh"

namespace adtrain::kernels {

/// How a warp stores its 16 rows of a part of 64 columns of a 16-bit result by itself: through shared memory,
/// from which bulk copies take them while the warp works on. So no warp waits for another one.
///
/// As for operands of the tensor cores, a lane has two neighbouring columns of each 8, of two rows eight
/// apart.
class StoredRows {
 public:
  static constexpr int kRows = 16, kColumns = 64, kBlocks = kColumns / 8;

  /// A part as bulk copies with a swizzle of 128 bytes expect it.
  struct alignas(1024) Part {
    cute::uint128_t chunks[kRows][kBlocks];
  };
  /// Of a result (rows, columns).
  static TensorMap map_of(const void* result, int rows, int columns) {
    return tensor_map(result, rows, int64_t{columns} * kBytes, kRows);
  }
  /// `map`: map_of() the result.
  __device__ StoredRows(const TensorMap& map, Part& part, int lane) : map_(map), part_(part), lane_(lane) {}

  /// `pairs`: a lane's, for each block of 8 columns those of both rows.
  __device__ void store(const uint32_t (&pairs)[kBlocks][2], int row, int column) {
    finish();
    __syncwarp();
    fill(pairs);
    cute::tma_store_fence();
    __syncwarp();
    if (lane_ == 0) {
      cute::SM90_TMA_STORE_2D::copy(&map_, &part_, column * kBytes, row);
      cute::tma_store_arrive();
    }
  }

  /// Waits until the part has been read from shared memory.
  __device__ void finish() const {
    if (lane_ == 0) cute::tma_store_wait<0>();
  }

 private:
  static constexpr int kBytes = 2;  ///< of an element

  /// Four matrices of 8 × 8 at once: two of rows beside two of columns.
  __device__ void fill(const uint32_t (&pairs)[kBlocks][2]) const {
    const int matrix = lane_ / 8, row = lane_ % 8 + matrix % 2 * 8;
#pragma unroll
    for (int block = 0; block < kBlocks; block += 2) {
      cute::SM90_U32x4_STSM_N::copy(pairs[block][0], pairs[block][1], pairs[block + 1][0],
                                    pairs[block + 1][1], part_.chunks[row][(block + matrix / 2) ^ row % 8]);
    }
  }

  const TensorMap& map_;
  Part& part_;
  int lane_;
};

}  // namespace adtrain::kernels
