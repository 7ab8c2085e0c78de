#pragma once

#include "kernels/primitives/MatrixRows.h"

namespace adtrain::kernels {

/// Rows (sequences · length, heads, 3, head size) of queries, keys and values, and how far queries and keys
/// are rotated: feature i of a head and feature i + head size / 2 are a pair.
struct RopeShape {
  int64_t rows;  ///< fewer than 2^32
  int length, heads;
  int head_size;  ///< a multiple of 16
  ShortType type;
  const float *cosines, *sines;  ///< (length - queries, head size / 2)
  int queries;  ///< the last tokens, which are rotated as those are that stand so many before them
  int processors;
};

/// Rotates queries and keys where they stand.
void apply_rope(const RopeShape& shape, Vector* projected, cudaStream_t stream);

/// From the gradients of queries and keys that have been rotated, and of values, to that of `projected`.
struct RopeBackward {
  RopeShape shape;
  const Vector* d_queries;  ///< (sequences · query_rows, heads, head size), of each sequence's last rows
  const Vector *d_keys, *d_values;  ///< (rows, heads, head size)
  int query_rows;
  Vector* d_projected;
};
void apply_rope_backward(const RopeBackward& call, cudaStream_t stream);

}  // namespace adtrain::kernels
