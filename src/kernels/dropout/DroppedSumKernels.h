#pragma once

#include <driver_types.h>

#include "kernels/primitives/MatrixRows.h"

namespace adtrain::kernels {

/// y = x + dropout(product + bias). Returns at once, as the next one does; both throw EnvironmentError where
/// the kernel cannot be launched.
struct DroppedSumForward {
  MatrixShape shape;
  const Vector *x, *product, *bias;
  MatrixDropout dropout;
  Vector* y;
  int processors;
};
void dropped_sum_forward(const DroppedSumForward& call, cudaStream_t stream);

/// From the gradient of y to that of product, and to partial sums over rows whose total is the gradient of
/// bias.
struct DroppedSumBackward {
  MatrixShape shape;
  const Vector* d_y;
  MatrixDropout dropout;
  Vector* d_product;
  float* parts;  ///< (column_parts, width)
  int part_count;
};
void dropped_sum_backward(const DroppedSumBackward& call, cudaStream_t stream);

}  // namespace adtrain::kernels
