#pragma once

#include <algorithm>
#include <cstdint>

#include <driver_types.h>
#include <vector_types.h>

/// What kernels have in common that go once over the rows of 16-bit matrices, forward or backward, and
/// compute in fp32: norms, activations, rope, column sums. All pointers are the GPU's. Matrices are dense
/// and, like vectors of parameters, begin at multiples of 16 bytes. Calls return at once and throw
/// EnvironmentError where the kernel cannot be launched.
namespace adtrain::kernels {

/// Eight neighbouring numbers, which a thread loads at once.
using Vector = uint4;
constexpr int kVectorWidth = 8;

enum class ShortType { kHalf, kBFloat16 };

struct MatrixShape {
  int64_t rows;
  int width;  ///< a multiple of 8
  ShortType type;
  constexpr int vectors() const { return width / kVectorWidth; }  ///< a row
};

/// Dropout of a matrix's elements.
struct MatrixDropout {
  /// (rows, width / 8), bit i set where element i of a vector is kept; null where nothing is dropped
  const uint8_t* keep;
  float scale;  ///< of what is kept
};

/// Kernels whose threads have one vector of every so many rows, and so what goes with a column in registers:
/// a thread block has 32 vectors side by side, a warp a row.
constexpr int kColumnVectors = 32;
constexpr int kColumnWarps = 8;
constexpr int kColumnBlocks = 4;  ///< resident on a multiprocessor

inline unsigned column_blocks(const MatrixShape& shape) {
  return static_cast<unsigned>((shape.vectors() + kColumnVectors - 1) / kColumnVectors);
}
/// How many thread blocks share out the rows of a column, and so how many rows of partial sums they write.
inline int column_parts(const MatrixShape& shape, int processors) {
  const int64_t wanted = processors * kColumnBlocks / column_blocks(shape);
  return static_cast<int>(std::clamp<int64_t>(wanted, 1, (shape.rows + kColumnWarps - 1) / kColumnWarps));
}

}  // namespace adtrain::kernels
