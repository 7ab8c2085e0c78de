#pragma once

#include <cstdint>

#include "kernels/primitives/Instructions.cuh"
#include "kernels/primitives/Tile.cuh"
#include "kernels/primitives/WarpgroupInstructions.cuh"

/// Products of a warpgroup with tiles in shared memory as their right operands, of elements of type `Short`:
/// tiles and fragments hold bits, whose type only products know. A tile's swizzle is the one
/// that "wgmma" of the PTX ISA calls 128 bytes (Tile<64>), 64 bytes (Tile<32>) and 32 bytes (Tile<16>); it
/// counts from multiples of 1024 bytes, where the tiles must begin.
namespace adtrain::kernels {

constexpr int kWarpsOfGroup = 4;
constexpr int kGroupRows = kWarpsOfGroup * kWarpTile;  ///< of the left operand, 16 of each warp
constexpr int kTileAlignment = 1024;

/// The matrix descriptor of a tile: eight rows are contiguous, and the next eight follow them.
template <int Width>
__device__ uint64_t descriptor_of(Tile<Width> tile) {
  static_assert(Width == 64 || Width == 32 || Width == 16);
  constexpr uint64_t kEightRows = 8 * Width * sizeof(Bf16), kSwizzle = Width == 64 ? 1 : Width == 32 ? 2 : 3;
  return (uint64_t{1} << 16 | kEightRows >> 4 << 32 | kSwizzle << 62) + (shared_address(tile.data) >> 4);
}

/// The descriptor of what lies so many elements further on.
__device__ inline uint64_t further(uint64_t descriptor, int elements) {
  return descriptor + elements * sizeof(Bf16) / 16;
}

/// sums += left · right with right[k][j] = tile[j][column + k]: 16 columns of the tile's 8 `Count` rows.
template <class Short, int Width, int Count>
__device__ void start_product_with_rows(Sums (&sums)[Count], const LeftFragment& left, Tile<Width> tile,
                                        int column) {
  start_product<Short, false>(sums, left, further(descriptor_of(tile), column));
}
/// The same with left[i][k] = own[i][column + k], 64 rows of another tile.
template <class Short, int Width, int Count>
__device__ void start_product_with_rows(Sums (&sums)[Count], Tile<Width> own, Tile<Width> tile, int column) {
  start_product<Short, false, false>(sums, further(descriptor_of(own), column),
                                     further(descriptor_of(tile), column));
}
/// sums += left · right with right[k][j] = tile[row + k][j]: 16 rows of the tile. `row`: a multiple of 16.
template <class Short, int Width>
__device__ void start_product_over_rows(Sums (&sums)[Width / 8], const LeftFragment& left, Tile<Width> tile,
                                        int row) {
  start_product<Short, true>(sums, left, further(descriptor_of(tile), row * Width));
}

/// The same with left[i][k] = own[i][column + k], 64 rows of another tile.
template <class Short, int Width>
__device__ void start_product_over_rows(Sums (&sums)[Width / 8], Tile<64> own, int column, Tile<Width> tile,
                                        int row) {
  start_product<Short, false, true>(sums, further(descriptor_of(own), column),
                                    further(descriptor_of(tile), row * Width));
}
/// The same with left[i][k] = own[row + k][i]: both operands are 16 rows of a tile.
template <class Short, int Width>
__device__ void start_product_over_rows(Sums (&sums)[Width / 8], Tile<64> own, Tile<Width> tile, int row) {
  start_product<Short, true, true>(sums, further(descriptor_of(own), row * 64),
                                   further(descriptor_of(tile), row * Width));
}

/// The launch's dynamic shared memory from the first multiple of kTileAlignment bytes on. The launch has as
/// many bytes more.
__device__ inline char* shared_memory_for_tiles() {
  char* const memory = dynamic_shared_memory();
  return memory + (kTileAlignment - shared_address(memory) % kTileAlignment) % kTileAlignment;
}

}  // namespace adtrain::kernels
