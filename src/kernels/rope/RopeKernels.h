#pragma once

#include "kernels/primitives/MatrixRows.h"

namespace adtrain::kernels {

/// The shape (sequences · length, heads, 3, head size) of queries, keys and values, and the angles by which
/// queries and keys are rotated. Features i and i + head size / 2 of a head form a pair.
struct RopeShape {
  int64_t rows;  ///< fewer than 2^32
  int length, heads;
  int head_size;  ///< a multiple of 16
  ShortType type;
  const float *cosines, *sines;  ///< (length - queries, head size / 2)
  int queries;  ///< the last tokens of a sequence; they take the angles of as many tokens before them
  int processors;
};

/// Rotates queries and keys in place.
void apply_rope(const RopeShape& shape, Vector* projected, cudaStream_t stream);

/// From the gradients of rotated queries, of rotated keys and of values to the gradient of `projected`.
struct RopeBackward {
  RopeShape shape;
  const Vector* d_queries;  ///< (sequences · query_rows, heads, head size): of each sequence's last rows
  const Vector *d_keys, *d_values;  ///< (rows, heads, head size)
  int query_rows;
  Vector* d_projected;
};
void apply_rope_backward(const RopeBackward& call, cudaStream_t stream);

}  // namespace adtrain::kernels
