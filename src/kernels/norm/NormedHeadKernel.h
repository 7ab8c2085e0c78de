#pragma once

#include "kernels/primitives/MatrixRows.h"

namespace adtrain::kernels {

/// logits = norm(x) Wᵀ + bias, row by row: LayerNorm where there is a norm_bias, RMSNorm where there is a
/// weight alone, and x itself where there is neither. Nothing is rounded between x and the logits.
struct NormedHead {
  MatrixShape shape;  ///< of x
  const Vector *x, *norm_weight, *norm_bias;
  float epsilon;
  int outputs;
  const Vector* weight;  ///< (outputs, width)
  const void* bias;      ///< (outputs), of x's type
  float* logits;         ///< (rows, outputs)
};
void normed_head(const NormedHead& call, cudaStream_t stream);

}  // namespace adtrain::kernels
