#pragma once

#include "kernels/primitives/MatrixRows.h"

/// LayerNorm and RMSNorm with the bias, dropout and residual before them.
namespace adtrain::kernels {

constexpr int kMaxNormWidth = 4096;

/// y = normalised · weight + norm_bias. Here normalised = (sum − mean) / deviation with sum = x +
/// dropout(product + bias), row by row.
struct NormForward {
  MatrixShape shape;
  const Vector *x, *product;
  const Vector *bias, *weight, *norm_bias;
  float epsilon;
  MatrixDropout dropout;
  Vector *y, *normalised;
  float* inverse_deviation;  ///< 1 / deviation, (rows)
};
void norm_forward(const NormForward& call, cudaStream_t stream);

/// How many rows of partial sums norm_backward writes.
int norm_backward_parts(const MatrixShape& shape, int processors);

/// From the gradient of y to those of x and product, and to partial sums over rows for the gradients of bias,
/// weight and norm_bias.
struct NormBackward {
  MatrixShape shape;
  const Vector *d_y, *normalised, *weight;
  const float* inverse_deviation;
  MatrixDropout dropout;
  Vector* d_x;
  Vector* d_product;  ///< not written without dropout, as it then equals d_x
  float* parts;       ///< (norm_backward_parts, 3, stride)
  int part_count;
  int stride;  ///< from one parameter's sums to the next one's, at least the width; gaps are set to zero
};
void norm_backward(const NormBackward& call, cudaStream_t stream);

/// y = dropout(x) · weight / √(mean(dropout(x)²) + epsilon), row by row. With a product, the sum x + product
/// + bias replaces x.
struct RmsNormForward {
  MatrixShape shape;
  const Vector *x, *weight;
  float epsilon;
  MatrixDropout dropout;
  Vector* y;
  const Vector *product = nullptr, *bias = nullptr;  ///< both or neither
  Vector* sum = nullptr;                             ///< the rounded sum; written where there is a product
};
void rms_norm_forward(const RmsNormForward& call, cudaStream_t stream);

/// How many rows of partial sums rms_norm_backward writes.
int rms_norm_backward_parts(const MatrixShape& shape, int processors);

/// From the gradient of y to the gradient of x, which includes the gradient through the residual connection,
/// and to partial sums over rows for the gradient of weight.
struct RmsNormBackward {
  MatrixShape shape;
  const Vector* d_y;  ///< (terms, rows, width): the gradient is the sum of its terms
  int terms;
  const Vector *x, *weight;
  float epsilon;
  MatrixDropout dropout;
  const Vector* residual;  ///< (rows / length · residual_rows, width): for the last of each `length` rows
  int length, residual_rows;
  Vector* d_x;
  float* parts;  ///< (rms_norm_backward_parts, stride)
  int part_count;
  int stride;  ///< at least the width; gaps are set to zero
  /// Whether x was a sum with a bias. Parts are then (rms_norm_backward_parts, 2, stride), and each part's
  /// first row belongs to the gradient of bias, which sums d_x over rows.
  bool of_sum = false;
};
void rms_norm_backward(const RmsNormBackward& call, cudaStream_t stream);

}  // namespace adtrain::kernels
