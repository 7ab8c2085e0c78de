#pragma once

#include <cstdint>

#include <driver_types.h>

#include "kernels/activation/GeluKind.h"
#include "kernels/primitives/MatrixRows.h"

/// Matrix products whose epilogue has GELU in the form of GeluValues.cuh, or its derivative, around CUTLASS's
/// collective products, for GPUs of compute capability 9.0. Sums are in fp32. All pointers are to the GPU's
/// memory, matrices are dense and aligned to 16 bytes. Calls return at once, may be captured in CUDA graphs,
/// and throw EnvironmentError where a kernel cannot be launched.
namespace adtrain::kernels {

/// Of a tile, which the warps of one warpgroup compute at a time.
constexpr int kGeluTileRows = 128, kGeluTileColumns = 128, kGeluTileWarps = 4;

/// How many tiles a result (rows, inner) has.
constexpr int64_t gelu_product_tiles(int64_t rows, int64_t inner) {
  return ((rows + kGeluTileRows - 1) / kGeluTileRows) * ((inner + kGeluTileColumns - 1) / kGeluTileColumns);
}

/// The derivatives of GELU, as the first of these products leaves them for the second one, are in an order of
/// their own: of tiles of rows, then of columns, and within one of the lanes that have them
/// (StoredSlopes.cuh). They stand for whole pairs of tiles of rows, of which each cluster of thread blocks
/// has one.
inline int64_t gelu_slopes_bytes(const MatrixShape& shape) {
  const int64_t pairs = (shape.rows + 2 * kGeluTileRows - 1) / (2 * kGeluTileRows);
  const int64_t elements =
      gelu_product_tiles(2 * kGeluTileRows * pairs, shape.width) * (kGeluTileRows * kGeluTileColumns);
  return shape.type == ShortType::kHalf ? 2 * elements : elements;
}

/// y = dropout(gelu(x Wᵀ + b)), and its derivative there, dropped too, which is what the backward pass needs.
/// Both are of the sum as it is ahead of any rounding.
struct GeluProduct {
  MatrixShape shape;         ///< of y: (rows, inner)
  int in;                    ///< a multiple of 8
  const Vector *x, *weight;  ///< (rows, in), (inner, in)
  const Vector* bias;        ///< (inner)
  GeluKind kind;
  /// For kExact alone. Where it drops, `inner` is a multiple of kGeluTileColumns and its bits are aligned to
  /// 16 bytes.
  MatrixDropout dropout;
  void* slopes;  ///< gelu_slopes_bytes
  Vector* y;
  int processors;
};
void gelu_product(const GeluProduct& call, cudaStream_t stream);

/// d_sum = d_out W · slopes, the gradient of x Wᵀ + b, and its partial sums over rows whose total is the
/// gradient of the bias.
struct GeluProductGradient {
  MatrixShape shape;             ///< of d_sum: (rows, inner)
  int out;                       ///< a multiple of 8
  const Vector *d_out, *weight;  ///< (rows, out), (out, inner): of the product that y goes into
  void* slopes;                  ///< of the same shape's gelu_product()
  float slope_scale;             ///< what dropout multiplied there; 1 where nothing was dropped
  Vector* d_sum;
  float* parts;  ///< (gelu_product_parts, inner)
  int processors;
};
void gelu_product_gradient(const GeluProductGradient& call, cudaStream_t stream);

/// How many partial sums a column has.
inline int gelu_product_parts(const MatrixShape& shape) {
  return static_cast<int>((shape.rows + kGeluTileRows - 1) / kGeluTileRows);
}

}  // namespace adtrain::kernels
