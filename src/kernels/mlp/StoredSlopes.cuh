#pragma once

#include <cmath>
#include <cstdint>
#include <type_traits>

#include <cuda_fp16.h>
#include <cuda_runtime.h>

#include "kernels/mlp/GeluProducts.h"
#include "kernels/primitives/ShortType.cuh"
#include "kernels/primitives/Tile.cuh"

namespace adtrain::kernels {

/// The derivatives of GELU that a lane has of a tile, as they are kept from the forward product's epilogue
/// for the backward product's. As both have the same tiles and the same lanes for their elements, a lane
/// stores its own and loads them again, 16 bytes at a time beside those of its neighbours; they never pass
/// through shared memory.
///
/// In fp16 they are fp16. In bf16 they are codes of 8 bits, kZero + round(slope / unit): slopes lie in
/// [-0.13, 1.13], and one of 1 is kOfOne units. That is half the memory, with errors of 1/300 at most, where
/// bf16's are up to 1/512 below 1 and 1/256 above. 0 is exact, and 1 within 1e-4: most slopes are near them.
template <class Short>
class StoredSlopes {
 public:
  /// Of a part of 64 × 64 elements, of which a lane has 8 blocks of two rows of two columns.
  static constexpr int kPartBlocks = 8;
  static constexpr bool kCodes = !std::is_same_v<Short, __half>;
  static constexpr int kWords = kPartBlocks * (kCodes ? 1 : 2), kVectors = kWords / 4;

  union Part {
    uint32_t words[kWords];
    uint4 vectors[kVectors];
  };

  /// Of a tile of a matrix with so many columns; `lane`: of the warpgroup.
  __device__ StoredSlopes(void* slopes, int tile_row, int tile_column, int columns, int lane) {
    const int tiles = (columns + kGeluTileColumns - 1) / kGeluTileColumns;
    place_ = static_cast<uint4*>(slopes) + (int64_t{tile_row} * tiles + tile_column) * kTileVectors + lane;
  }

  __device__ void store(int part, const Part& stored) const {
#pragma unroll
    for (int i = 0; i < kVectors; ++i) place_[(part * kVectors + i) * kLanes] = stored.vectors[i];
  }
  __device__ void load(int part, Part& stored) const {
#pragma unroll
    for (int i = 0; i < kVectors; ++i) stored.vectors[i] = __ldg(place_ + (part * kVectors + i) * kLanes);
  }

  /// What a code counts, where slopes are scaled by dropout's scale: of 12 binary digits, so that get() is
  /// exact.
  static float unit(float scale) {
    constexpr int kDigits = 12;
    int exponent = 0;
    const float digits = std::frexp(scale / kOfOne, &exponent);
    return std::ldexp(std::round(std::ldexp(digits, kDigits)), exponent - kDigits);
  }
  /// Puts a block's slopes (rows, columns) where they are stored.
  static __device__ void put(Part& stored, int block, const float (&slopes)[2][2], float inverse_unit) {
    if constexpr (kCodes) {
      // fp16's numbers from 1024 to 2048 have the distance 1, so that their low bytes are the codes.
      const __half2 inverse = __float2half2_rn(inverse_unit), zero = __float2half2_rn(1024 + kZero);
      const __half2 upper = __hfma2(__floats2half2_rn(slopes[0][0], slopes[0][1]), inverse, zero),
                    lower = __hfma2(__floats2half2_rn(slopes[1][0], slopes[1][1]), inverse, zero);
      stored.words[block] = __byte_perm(reinterpret_cast<const uint32_t&>(upper),
                                        reinterpret_cast<const uint32_t&>(lower), 0x6420);
    } else {
      stored.words[2 * block] = packed<Short>(slopes[0][0], slopes[0][1]);
      stored.words[2 * block + 1] = packed<Short>(slopes[1][0], slopes[1][1]);
    }
  }
  /// The inverse.
  static __device__ void get(const Part& stored, int block, float (&slopes)[2][2], float unit) {
    if constexpr (kCodes) {
      // A code becomes the second byte of 1, which makes it 1 + code / 2^15.
      constexpr float kLowest = 0x1p-15F, kOfZero = 1 + kZero * kLowest;
      const float scale = unit / kLowest;
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        const uint32_t number = __byte_perm(stored.words[block], 0x3f800000U, 0x7604 + i * 0x10);
        slopes[i / 2][i % 2] = fmaf(__uint_as_float(number), scale, -kOfZero * scale);
      }
    } else {
#pragma unroll
      for (int row = 0; row < 2; ++row) {
        const float2 pair = unpacked<Short>(stored.words[2 * block + row]);
        slopes[row][0] = pair.x, slopes[row][1] = pair.y;
      }
    }
  }

 private:
  static constexpr int kLanes = kGeluTileWarps * kWarp, kTileParts = 4,
                       kTileVectors = kTileParts * kVectors * kLanes;
  static constexpr float kOfOne = 196, kZero = 32;

  uint4* place_;
};

}  // namespace adtrain::kernels
