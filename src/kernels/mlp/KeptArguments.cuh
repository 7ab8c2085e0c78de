#pragma once

#include <cstdint>

#include <cuda_runtime.h>
#include <cutlass/cutlass.h>
#include <cutlass/epilogue/fusion/operations.hpp>

#include "kernels/mlp/EpilogueVisitor.cuh"

namespace adtrain::kernels {

/// Dropout ahead of GELU. It passes the elements on that are kept, and for the others an argument at which
/// GELU and its derivative are 0, so that one choice serves both. A warpgroup has all rows of a tile of kRows
/// × kColumns.
///
/// A thread reads its rows' bits of the whole tile at once, before it works on the first of its elements.
template <int kRows, int kColumns>
struct KeptArguments : EpilogueVisitor {
  static constexpr int kWordBits = 32, kWords = kColumns / kWordBits;
  static constexpr int kOfThread = kRows / 32;  ///< its rows: two of each 64, eight apart
  static constexpr float kDropped = -64.0F;     ///< a finite one: its product with 0 is 0
  static_assert(kWords == 4, "a row's bits are one load of 16 bytes");

  struct SharedStorage {};
  struct Arguments {
    const uint8_t* keep;  ///< as MatrixDropout's, aligned to 16 bytes; the width is a multiple of kColumns
  };
  using Params = Arguments;

  KeptArguments() = default;
  CUTLASS_HOST_DEVICE KeptArguments(const Params& from, const SharedStorage&) : from(from) {}
  Params from;

  template <class Coordinates>
  struct OfThread : cutlass::epilogue::fusion::EmptyConsumerStoreCallbacks {
    Coordinates coordinates;
    const uint8_t* keep;  ///< of the thread's first row, from the tile's first column on
    int row_bytes;
    int rows;          ///< that exist, from the thread's first one on
    int first_column;  ///< of the thread, in the tile
    uint32_t words[kOfThread][kWords];

    CUTLASS_DEVICE OfThread(const Coordinates& coordinates, const uint8_t* keep, int row_bytes, int rows,
                            int first_column)
        : coordinates(coordinates),
          keep(keep),
          row_bytes(row_bytes),
          rows(rows),
          first_column(first_column) {}

    CUTLASS_DEVICE void begin() {
      CUTLASS_PRAGMA_UNROLL
      for (int i = 0; i < kOfThread; ++i) {
        const int row = i / 2 * 64 + i % 2 * 8;
        uint4 bits = {};
        if (row < rows) bits = __ldg(reinterpret_cast<const uint4*>(keep + int64_t{row} * row_bytes));
        words[i][0] = bits.x, words[i][1] = bits.y, words[i][2] = bits.z, words[i][3] = bits.w;
        CUTLASS_PRAGMA_UNROLL
        for (uint32_t& word : words[i]) word >>= first_column;  // then an element's bit is a constant's
      }
    }

    template <class Sum, int kCount>
    CUTLASS_DEVICE cutlass::Array<float, kCount> visit(const cutlass::Array<Sum, kCount>&, int part,
                                                       int tile_row, int tile_column,
                                                       const cutlass::Array<float, kCount>& values) {
      const auto places = coordinates(cute::_, cute::_, cute::_, tile_row, tile_column);
      cutlass::Array<float, kCount> result;
      CUTLASS_PRAGMA_UNROLL
      for (int i = 0; i < kCount; ++i) {
        const auto place = places(part * kCount + i);
        const int row = cute::get<0>(place), column = cute::get<1>(place);
        const uint32_t word = words[row / 64 * 2 + row % 64 / 8][column / kWordBits];
        result[i] = (word >> (column % kWordBits) & 1U) != 0 ? values[i] : kDropped;
      }
      return result;
    }
  };

  template <bool kOfSource, class Consumer>
  CUTLASS_DEVICE auto get_consumer_store_callbacks(const Consumer& consumer) {
    const int width = cute::get<1>(consumer.problem_shape_mnkl), row_bytes = width / 8,
              rows = cute::get<0>(consumer.residue_tCcD),
              row = static_cast<int>(cute::get<0>(consumer.problem_shape_mnkl)) - rows,
              column = kColumns * static_cast<int>(cute::get<1>(consumer.tile_coord_mnkl));
    return OfThread<decltype(consumer.tCcD)>(consumer.tCcD, from.keep + int64_t{row} * row_bytes + column / 8,
                                             row_bytes, rows,
                                             width - cute::get<1>(consumer.residue_tCcD) - column);
  }
};

}  // namespace adtrain::kernels
