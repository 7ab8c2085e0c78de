#pragma once

#include "kernels/activation/GeluKind.h"
#include "kernels/primitives/MatrixRows.h"

namespace adtrain::kernels {

/// y = dropout(gelu(product + bias)).
struct GeluForward {
  MatrixShape shape;
  GeluKind kind;
  const Vector *product, *bias;
  MatrixDropout dropout;
  Vector* y;
  int processors;
};
void gelu_forward(const GeluForward& call, cudaStream_t stream);

/// From the gradient of y to that of product, and to partial sums over rows whose total is the gradient of
/// bias.
struct GeluBackward {
  MatrixShape shape;
  GeluKind kind;
  const Vector *d_y, *product, *bias;
  MatrixDropout dropout;
  Vector* d_product;
  float* parts;  ///< (column_parts, width)
  int part_count;
};
void gelu_backward(const GeluBackward& call, cudaStream_t stream);

/// y = silu(a) · b, the gate of SwiGLU.
struct SiluProductForward {
  MatrixShape shape;      ///< of y
  const Vector* factors;  ///< (rows, 2, width): a and b
  Vector* y;
  int processors;
};
void silu_product_forward(const SiluProductForward& call, cudaStream_t stream);

/// From the gradient of y to the gradients of a and b.
struct SiluProductBackward {
  MatrixShape shape;
  const Vector *d_y, *factors;
  Vector* d_factors;
  int processors;
};
void silu_product_backward(const SiluProductBackward& call, cudaStream_t stream);

}  // namespace adtrain::kernels
