#pragma once

#include <cstdint>

#include <cuda_runtime.h>
#include <cutlass/cutlass.h>
#include <cutlass/epilogue/fusion/operations.hpp>

#include "kernels/mlp/EpilogueVisitor.cuh"

namespace adtrain::kernels {

/// Passes its input on and adds up its columns: of each tile one row of partial sums, (tiles, width) in fp32.
/// A warpgroup has all rows of a tile of `kColumns`.
///
/// A thread has two neighbouring columns of each 8, of a few rows. The lanes at distances 4, 8 and 16 have
/// others of the same columns: at each of three steps a lane gives half of its columns away and receives the
/// other half's sums. Then the warps meet in shared memory.
template <int kColumns>
struct ColumnSums : EpilogueVisitor {
  static constexpr int kWarps = 4, kLanes = 32;
  static constexpr int kOfThread = kColumns / 4, kOfLane = kOfThread / 8;  ///< before and after the steps

  struct SharedStorage {
    float sums[kWarps][kColumns];
  };
  struct Arguments {
    float* parts;
  };
  using Params = Arguments;

  ColumnSums() = default;
  CUTLASS_HOST_DEVICE ColumnSums(const Params& to, const SharedStorage& storage)
      : to(to), shared(const_cast<SharedStorage*>(&storage)) {}
  Params to;
  SharedStorage* shared;

  template <class Coordinates>
  struct OfThread : cutlass::epilogue::fusion::EmptyConsumerStoreCallbacks {
    Coordinates coordinates;
    SharedStorage& shared;
    float* parts;       ///< of the tile, from its first column on
    int rows, columns;  ///< that exist: from the thread's first one on, and from the tile's
    int thread;
    float sums[kOfThread];

    CUTLASS_DEVICE OfThread(const Coordinates& coordinates, SharedStorage& shared, float* parts, int rows,
                            int columns, int thread)
        : coordinates(coordinates),
          shared(shared),
          parts(parts),
          rows(rows),
          columns(columns),
          thread(thread) {
      CUTLASS_PRAGMA_UNROLL
      for (float& sum : sums) sum = 0;
    }

    template <class Sum, int kCount>
    CUTLASS_DEVICE cutlass::Array<float, kCount> visit(const cutlass::Array<Sum, kCount>&, int part,
                                                       int tile_row, int tile_column,
                                                       const cutlass::Array<float, kCount>& values) {
      const auto places = coordinates(cute::_, cute::_, cute::_, tile_row, tile_column);
      CUTLASS_PRAGMA_UNROLL
      for (int i = 0; i < kCount; ++i) {
        const auto place = places(part * kCount + i);
        const int column = cute::get<1>(place);
        if (cute::get<0>(place) < rows) sums[column / 8 * 2 + column % 2] += values[i];
      }
      return values;
    }

    template <class Buffer, class Barrier, class Results>
    CUTLASS_DEVICE void reduce(Buffer&&, const Barrier& barrier, int, int, bool is_last, Results) {
      if (!is_last) return;
      const int lane = thread % kLanes, quad_lane = lane % 4;
      int first = 0;  // of the columns that the lane is left with
      CUTLASS_PRAGMA_UNROLL
      for (int step = 0; step < 3; ++step) {
        const int half = kOfThread >> (step + 1), apart = kLanes / 2 >> step;
        const bool takes_second = (lane & apart) != 0;
        first += takes_second ? half : 0;
        CUTLASS_PRAGMA_UNROLL
        for (int i = 0; i < kOfThread / 2; ++i) {  // a constant bound, so that sums stay in registers
          if (i >= half) break;
          const float given = takes_second ? sums[i] : sums[i + half];
          sums[i] = (takes_second ? sums[i + half] : sums[i]) + __shfl_xor_sync(0xffffffffU, given, apart);
        }
      }
      barrier();  // the sums of the tile before have been read
      CUTLASS_PRAGMA_UNROLL
      for (int i = 0; i < kOfLane; ++i) {
        const int number = first + i;
        shared.sums[thread / kLanes][number / 2 * 8 + quad_lane * 2 + number % 2] = sums[i];
      }
      barrier();
      for (int column = thread; column < min(kColumns, columns); column += kWarps * kLanes) {
        float sum = 0;
        CUTLASS_PRAGMA_UNROLL
        for (const auto& of_warp : shared.sums) sum += of_warp[column];
        parts[column] = sum;
      }
    }
  };

  template <bool kOfSource, class Consumer>
  CUTLASS_DEVICE auto get_consumer_store_callbacks(const Consumer& consumer) {
    const int width = cute::get<1>(consumer.problem_shape_mnkl),
              first_column = kColumns * static_cast<int>(cute::get<1>(consumer.tile_coord_mnkl));
    // A cluster has tiles of two rows of tiles, of which the second may not exist; there is no place for its
    // sums.
    const bool exists = cute::get<0>(consumer.residue_cD) > 0;
    float* const parts = to.parts + int64_t{cute::get<0>(consumer.tile_coord_mnkl)} * width + first_column;
    return OfThread<decltype(consumer.tCcD)>(consumer.tCcD, *shared, parts,
                                             cute::get<0>(consumer.residue_tCcD),
                                             exists ? width - first_column : 0, consumer.thread_idx);
  }
};

}  // namespace adtrain::kernels
