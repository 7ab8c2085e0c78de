#pragma once

#include <cstdint>

#include <cuda_runtime.h>
#include <cute/tensor.hpp>
#include <cutlass/arch/barrier.h>

#include "kernels/mlp/GeluProducts.h"
#include "kernels/mlp/StoredRows.cuh"
#include "kernels/mlp/StoredSlopes.cuh"
#include "kernels/primitives/ShortType.cuh"
#include "kernels/primitives/TensorMap.h"
#include "kernels/primitives/Tile.cuh"

namespace adtrain::kernels {

/// The epilogue of GeluProductGradient, of a tile by one warpgroup: multiplies by the derivatives that
/// GeluEpilogue has kept, stores the results, and adds up their columns in fp32, ahead of any rounding.
template <class Short>
class GeluGradientEpilogue {
  using Slopes = StoredSlopes<Short>;

 public:
  struct Call {
    int rows, columns;  ///< of the result
    float unit;         ///< of StoredSlopes
    void* slopes;
    float* parts;  ///< (tiles of rows, columns)
    TensorMap d_sum;
  };
  /// Of a warpgroup. Two tiles in turn have their sums of columns, so that one barrier a tile will do.
  struct Memory {
    StoredRows::Part d_sum[kGeluTileWarps];
    float sums[2][kGeluTileWarps][kGeluTileColumns];
  };

  __device__ GeluGradientEpilogue(const Call& call, Memory& memory, int warp, int lane)
      : call_(call),
        memory_(memory),
        d_sum_(call.d_sum, memory.d_sum[warp], lane),
        warp_(warp),
        lane_(lane) {}

  /// The tile whose sums will be stored next. Its derivatives are on their way from here on.
  __device__ void begin(int tile_row, int tile_column) {
    tile_row_ = tile_row, tile_column_ = tile_column;
    const Slopes slopes = slopes_of_tile();
#pragma unroll
    for (int part = 0; part < kAhead; ++part) slopes.load(part, ahead_[part]);
  }

  /// `sums`: as for GeluEpilogue.
  template <class Sums>
  __device__ void store(const Sums& sums) {
    float of_columns[kBlocks][2] = {};
    const Slopes slopes = slopes_of_tile();
#pragma unroll
    for (int part = 0; part < kParts; ++part) {
      const int part_row = part / 2, part_column = part % 2;
      typename Slopes::Part& stored = ahead_[part % kAhead];
      uint32_t pairs[kPartBlocks][2];
#pragma unroll
      for (int block = 0; block < kPartBlocks; ++block) {
        float slope[2][2];
        Slopes::get(stored, block, slope, call_.unit);
#pragma unroll
        for (int row = 0; row < 2; ++row) {
          float value[2];
#pragma unroll
          for (int i = 0; i < 2; ++i) {
            value[i] = sums(cute::make_coord(i, row, part_column * kPartBlocks + block), part_row, 0) *
                       slope[row][i];
            of_columns[part_column * kPartBlocks + block][i] += value[i];
          }
          pairs[block][row] = packed<Short>(value[0], value[1]);
        }
      }
      if (part + kAhead < kParts) slopes.load(part + kAhead, stored);
      d_sum_.store(pairs, tile_row_ * kGeluTileRows + part_row * kPart + warp_ * StoredRows::kRows,
                   tile_column_ * kGeluTileColumns + part_column * kPart);
    }
    add_columns(of_columns);
  }

  __device__ void finish() const {
    d_sum_.finish();
  }

 private:
  static constexpr int kPart = StoredRows::kColumns, kParts = 4, kBlocks = kGeluTileColumns / 8,
                       kPartBlocks = StoredRows::kBlocks, kOfThread = 2 * kBlocks;
  static constexpr int kAhead = Slopes::kCodes ? kParts : kParts / 2;  ///< as registers allow

  __device__ Slopes slopes_of_tile() const {
    return {call_.slopes, tile_row_, tile_column_, call_.columns, warp_ * kWarp + lane_};
  }

  /// The lanes at distances 4, 8 and 16 have others of the same columns: at each of three steps a lane gives
  /// half of its columns away and receives the other half's sums. Then the warps meet in shared memory.
  __device__ void add_columns(float (&of_columns)[kBlocks][2]) {
    float(&sums)[kOfThread] = reinterpret_cast<float(&)[kOfThread]>(of_columns);
    int first = 0;  // of the columns that the lane is left with
#pragma unroll
    for (int step = 0; step < 3; ++step) {
      const int half = kOfThread >> (step + 1), apart = kWarp / 2 >> step;
      const bool takes_second = (lane_ & apart) != 0;
      first += takes_second ? half : 0;
#pragma unroll
      for (int i = 0; i < kOfThread / 2; ++i) {  // a constant bound, so that sums stay in registers
        if (i >= half) break;
        const float given = takes_second ? sums[i] : sums[i + half];
        sums[i] = (takes_second ? sums[i + half] : sums[i]) + __shfl_xor_sync(kAllLanes, given, apart);
      }
    }
    auto& of_warps = memory_.sums[turn_];
    turn_ ^= 1;
#pragma unroll
    for (int i = 0; i < kOfThread / 8; ++i) {
      const int number = first + i;
      of_warps[warp_][number / 2 * 8 + lane_ % 4 * 2 + number % 2] = sums[i];
    }
    cutlass::arch::NamedBarrier::sync(kGeluTileWarps * kWarp, threadIdx.x / (kGeluTileWarps * kWarp));
    const int of_tile = warp_ * kWarp + lane_, column = tile_column_ * kGeluTileColumns + of_tile;
    // A cluster has tiles of two rows of tiles, of which the second may not exist; there is no place for its
    // sums.
    if (column >= call_.columns || tile_row_ * kGeluTileRows >= call_.rows) return;
    float sum = 0;
#pragma unroll
    for (const auto& of_warp : of_warps) sum += of_warp[of_tile];
    call_.parts[int64_t{tile_row_} * call_.columns + column] = sum;
  }

  const Call& call_;
  Memory& memory_;
  StoredRows d_sum_;
  int warp_, lane_;
  int tile_row_ = 0, tile_column_ = 0;
  int turn_ = 0;
  typename Slopes::Part ahead_[kAhead];
};

}  // namespace adtrain::kernels
