#pragma once

#include <cstdint>

#include "kernels/primitives/MatrixRows.h"

namespace adtrain::kernels {

/// Queries and keys, or their gradients: rows of heads, each of which is contiguous. Strides in vectors.
template <class Value>
struct HeadRows {
  Value* kinds[2];            ///< of queries, of keys
  int64_t of_token, of_head;  ///< tokens are evenly apart, across sequences too
};

/// What both passes are given.
struct HeadNormShape {
  int tokens;  ///< of all sequences
  int heads, head_size;
  bool layer;  ///< LayerNorm, else RMSNorm
  ShortType type;
  float epsilon;
  const Vector *weights[2], *biases[2];  ///< of queries, of keys; biases of LayerNorm alone
};

void head_norm_forward(const HeadNormShape& shape, const HeadRows<const Vector>& x, const HeadRows<Vector>& y,
                       cudaStream_t stream);

/// How many rows of partial sums head_norm_backward writes.
int head_norm_backward_parts(const HeadNormShape& shape, int processors);

/// `parts`: (head_norm_backward_parts, kinds, one for each sum, stride): those of weights, of LayerNorm's
/// biases. `stride`: at least the head size; gaps are set to zero.
void head_norm_backward(const HeadNormShape& shape, const HeadRows<const Vector>& d_y,
                        const HeadRows<const Vector>& x, const HeadRows<Vector>& d_x, float* parts,
                        int part_count, int stride, cudaStream_t stream);

}  // namespace adtrain::kernels
