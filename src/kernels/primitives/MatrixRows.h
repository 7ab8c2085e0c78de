#pragma once

#include <algorithm>
#include <cstdint>

#include <driver_types.h>
#include <vector_types.h>

/// What kernels share that read the rows of 16-bit matrices once, forward or backward, and compute in fp32:
/// norms, activations, rope, column sums. All pointers are to the GPU's memory. Matrices are dense. Matrices
/// and vectors of parameters are aligned to 16 bytes. Calls return at once and throw EnvironmentError where
/// the kernel cannot be launched.
namespace adtrain::kernels {

/// Eight neighbouring elements, which a thread loads at once.
using Vector = uint4;
constexpr int kVectorWidth = 8;

enum class ShortType { kHalf, kBFloat16 };

struct MatrixShape {
  int64_t rows;
  int width;  ///< a multiple of 8
  ShortType type;
  constexpr int vectors() const { return width / kVectorWidth; }  ///< of a row
};

/// Dropout of a matrix's elements.
struct MatrixDropout {
  /// (rows, width / 8): bit i is set where element i of a vector is kept; null where nothing is dropped
  const uint8_t* keep;
  float scale;  ///< multiplies the kept elements
};

/// For kernels in which a thread has one vector of each of its rows, so that values of a column stay in
/// registers. A thread block covers 32 neighbouring vectors, and each of its warps takes one row at a time.
constexpr int kColumnVectors = 32;
constexpr int kColumnWarps = 8;
constexpr int kColumnBlocks = 4;  ///< resident on a multiprocessor

inline unsigned column_blocks(const MatrixShape& shape) {
  return static_cast<unsigned>((shape.vectors() + kColumnVectors - 1) / kColumnVectors);
}
/// How many thread blocks share the rows of a column. Each writes one row of partial sums.
inline int column_parts(const MatrixShape& shape, int processors) {
  const int64_t wanted = processors * kColumnBlocks / column_blocks(shape);
  return static_cast<int>(std::clamp<int64_t>(wanted, 1, (shape.rows + kColumnWarps - 1) / kColumnWarps));
}

}  // namespace adtrain::kernels
