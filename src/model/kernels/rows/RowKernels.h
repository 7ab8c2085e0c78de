#pragma once

#include <cstdint>

#include <driver_types.h>
#include <vector_types.h>

/// Kernels that go once over the rows of 16-bit matrices, forward or backward, and compute in fp32. All
/// pointers are the GPU's. Matrices are dense and, like vectors of parameters, begin at multiples of 16
/// bytes. Calls return at once and throw EnvironmentError where the kernel cannot be launched.
namespace adtrain::kernels {

/// Eight neighbouring numbers, which a thread loads at once.
using Vector = uint4;
constexpr int kVectorWidth = 8;

enum class ShortType { kHalf, kBFloat16 };

struct MatrixShape {
  int64_t rows;
  int width;  ///< a multiple of 8
  ShortType type;
  constexpr int vectors() const { return width / kVectorWidth; }  ///< a row
};

/// Dropout of a matrix's elements.
struct DropoutBits {
  /// (rows, width / 8), bit i set where element i of a vector is kept; null where nothing is dropped
  const uint8_t* keep;
  float scale;  ///< of what is kept
};

constexpr int kMaxNormWidth = 4096;

/// y = normalised · weight + norm_bias, where normalised is x + dropout(product + bias), less its mean and
/// over its deviation, row by row.
struct NormForward {
  MatrixShape shape;
  const Vector *x, *product;
  const Vector *bias, *weight, *norm_bias;
  float epsilon;
  DropoutBits dropout;
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
  DropoutBits dropout;
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
  DropoutBits dropout;
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
  DropoutBits dropout;
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

/// y = silu(a) · b, the gate of SwiGLU.
struct SiluProductForward {
  MatrixShape shape;      ///< of y
  const Vector* factors;  ///< (rows, 2, width): a and b
  Vector* y;
  int processors;
};
void silu_product_forward(const SiluProductForward& call, cudaStream_t stream);

/// From the gradient of y to those of a and b.
struct SiluProductBackward {
  MatrixShape shape;
  const Vector *d_y, *factors;
  Vector* d_factors;
  int processors;
};
void silu_product_backward(const SiluProductBackward& call, cudaStream_t stream);

/// Rows (sequences · length, heads, 3, head size) of queries, keys and values, and how far queries and keys
/// turn: feature i of a head and feature i + head size / 2 are a pair.
struct TurnedShape {
  int64_t rows;  ///< fewer than 2^32
  int length, heads;
  int head_size;  ///< a multiple of 16
  ShortType type;
  const float *cosines, *sines;  ///< (length - queries, head size / 2)
  int queries;                   ///< the last tokens, which turn as those do that stand so many before them
  int processors;
};

/// Turns queries and keys where they stand.
void turn_heads(const TurnedShape& shape, Vector* projected, cudaStream_t stream);

/// From the gradients of queries and keys that have turned, and of values, to that of `projected`.
struct TurnBack {
  TurnedShape shape;
  const Vector* d_queries;  ///< (sequences · query_rows, heads, head size), of each sequence's last rows
  const Vector *d_keys, *d_values;  ///< (rows, heads, head size)
  int query_rows;
  Vector* d_projected;
};
void turn_heads_back(const TurnBack& call, cudaStream_t stream);

/// How many rows of partial sums gelu_backward and join_columns write.
int column_parts(const MatrixShape& shape, int processors);

/// y = dropout(gelu(product + bias)), with the error function.
struct GeluForward {
  MatrixShape shape;
  const Vector *product, *bias;
  DropoutBits dropout;
  Vector* y;
  int processors;
};
void gelu_forward(const GeluForward& call, cudaStream_t stream);

/// From the gradient of y to that of product, and to sums over rows that add up to the gradient of bias.
struct GeluBackward {
  MatrixShape shape;
  const Vector *d_y, *product, *bias;
  DropoutBits dropout;
  Vector* d_product;
  float* parts;  ///< (column_parts, width)
  int part_count;
};
void gelu_backward(const GeluBackward& call, cudaStream_t stream);

constexpr int kMaxJoined = 3;

/// Puts matrices of one width side by side, and sums up the columns of the result.
struct JoinColumns {
  MatrixShape shape;  ///< of the result
  const Vector* matrices[kMaxJoined];
  int matrix_count;
  Vector* joined;  ///< null: the sums are all that is wanted
  float* parts;    ///< (column_parts, width): sums over rows that add up to those of all
  int part_count;
};
void join_columns(const JoinColumns& call, cudaStream_t stream);

}  // namespace adtrain::kernels
