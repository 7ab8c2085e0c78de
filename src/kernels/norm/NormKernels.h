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

/// The norm before a sublayer, row by row: LayerNorm where there is a norm_bias, else RMSNorm. y =
/// norm(dropout(x)). With a product, x is replaced by the sum x + dropout(product + bias), and y = norm(sum).
struct InputNormForward {
  MatrixShape shape;
  const Vector *x, *weight;
  const Vector* norm_bias;  ///< null for RMSNorm
  float epsilon;
  MatrixDropout dropout;
  Vector* y;
  float2* statistics;  ///< (rows): mean and 1 / deviation; written by LayerNorm alone
  const Vector *product = nullptr, *bias = nullptr;  ///< both or neither
  Vector* sum = nullptr;                             ///< the rounded sum; written where there is a product
};
void input_norm_forward(const InputNormForward& call, cudaStream_t stream);

/// How many rows of partial sums input_norm_backward writes. `more_sums`: of LayerNorm, or with
/// `residual_parts`.
int input_norm_backward_parts(const MatrixShape& shape, bool more_sums, int processors);

/// From the gradient of y to the gradient of x, which includes the gradient through the residual connection,
/// and to partial sums over rows for the gradients of the norm's parameters.
struct InputNormBackward {
  MatrixShape shape;
  const Vector* d_y;  ///< (terms, rows, width): the gradient is the sum of its terms
  int terms;
  const Vector *x, *weight;
  const Vector* norm_bias;  ///< as in the forward pass
  float epsilon;
  const float2* statistics;
  MatrixDropout dropout;
  const Vector* residual;  ///< (rows / length · residual_rows, width): for the last of each `length` rows
  int length, residual_rows;
  Vector* d_x;
  float* parts;  ///< (input_norm_backward_parts, one for each sum, stride): bias, weight, norm_bias
  int part_count;
  int stride;  ///< at least the width; gaps are set to zero
  /// Whether x was a sum with a bias, whose gradient is then the first of each part's sums.
  bool of_sum = false;
  /// (input_norm_backward_parts, width): partial sums of `residual` over its rows. of_sum only; null where
  /// nobody needs them.
  float* residual_parts = nullptr;
  /// Where dropout was that of the product in the sum: its gradient. Else null. of_sum only.
  Vector* d_product = nullptr;
  Vector* y = nullptr;  ///< y again, by LayerNorm alone; null where nobody needs it
};
void input_norm_backward(const InputNormBackward& call, cudaStream_t stream);

}  // namespace adtrain::kernels
