#pragma once

#include "kernels/primitives/MatrixRows.h"

/// LayerNorm and RMSNorm with what stands before them: bias, dropout, residual.
namespace adtrain::kernels {

constexpr int kMaxNormWidth = 4096;

/// y = normalised · weight + norm_bias, where normalised is x + dropout(product + bias), less its mean and
/// over its deviation, row by row.
struct NormForward {
  MatrixShape shape;
  const Vector *x, *product;
  const Vector *bias, *weight, *norm_bias;
  float epsilon;
  MatrixDropout dropout;
  Vector *y, *normalised;
  float* inverse_deviation;  ///< (rows)
};
void norm_forward(const NormForward& call, cudaStream_t stream);

/// How many rows of partial sums norm_backward writes.
int norm_backward_parts(const MatrixShape& shape, int processors);

/// From the gradient of y to those of x and product, and to sums over rows that add up to the gradients of
/// bias, weight and norm_bias.
struct NormBackward {
  MatrixShape shape;
  const Vector *d_y, *normalised, *weight;
  const float* inverse_deviation;
  MatrixDropout dropout;
  Vector* d_x;
  Vector* d_product;  ///< not written where nothing is dropped: then it is d_x
  float* parts;       ///< (norm_backward_parts, 3, stride)
  int part_count;
  int stride;  ///< from one parameter's sums to the next one's, at least the width; gaps become zeros
};
void norm_backward(const NormBackward& call, cudaStream_t stream);

/// y = dropout(x) · weight / √(mean(dropout(x)²) + epsilon), row by row. With a product, the sum x + product
/// + bias takes the place of x.
struct RmsNormForward {
  MatrixShape shape;
  const Vector *x, *weight;
  float epsilon;
  MatrixDropout dropout;
  Vector* y;
  const Vector *product = nullptr, *bias = nullptr;  ///< both or none
  Vector* sum = nullptr;                             ///< written where there is a product
};
void rms_norm_forward(const RmsNormForward& call, cudaStream_t stream);

/// How many rows of partial sums rms_norm_backward writes.
int rms_norm_backward_parts(const MatrixShape& shape, int processors);

/// From the gradient of y to that of x, to which is added what comes to x past the norm, and to sums over
/// rows that add up to the gradient of weight.
struct RmsNormBackward {
  MatrixShape shape;
  const Vector* d_y;  ///< (terms, rows, width): terms of the gradient
  int terms;
  const Vector *x, *weight;
  float epsilon;
  MatrixDropout dropout;
  const Vector* residual;  ///< (rows / length · residual_rows, width): to the last of each `length` rows
  int length, residual_rows;
  Vector* d_x;
  float* parts;  ///< (rms_norm_backward_parts, stride)
  int part_count;
  int stride;  ///< at least the width; gaps become zeros
  /// Parts are (rms_norm_backward_parts, 2, stride): first what adds up to the gradient of bias, d_x's sums.
  bool of_sum = false;
};
void rms_norm_backward(const RmsNormBackward& call, cudaStream_t stream);

}  // namespace adtrain::kernels
