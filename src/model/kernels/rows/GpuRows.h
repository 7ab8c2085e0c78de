#pragma once

#include <cstdint>
#include <vector>

#include <ATen/core/Tensor.h>

#include "model/Attention.h"
#include "model/kernels/BlockPass.h"

/// What goes on between the products of a transformer block, on a GPU and in 16 bit, where torch would go
/// over memory several times: each function goes once over the rows of its matrices, computes in fp32 and
/// rounds only what it writes. Deterministic, on the current stream. Nothing here is recorded for autograd;
/// backward passes are functions of their own, which add the gradients of parameters to fp32 sums that begin
/// at multiples of 16 bytes. Matrices (…, width) may be views and are of one type; widths are multiples of 8.
namespace adtrain::kernels {

/// Which elements of a matrix dropout keeps.
struct KeptElements {
  at::Tensor bits;  ///< bytes, bit i of byte v set where element 8 v + i is kept; undefined where all are
  float scale = 1;  ///< of what is kept
};

/// Dropout of `count` elements of a block's hidden values, draw `number` of the pass.
KeptElements kept_elements(const BlockPass& pass, int64_t count, int64_t number);
/// The same of several matrices in one draw: bits of each begin with a word.
std::vector<KeptElements> kept_elements(const BlockPass& pass, at::IntArrayRef counts, int64_t number);

/// norm(x + dropout(product + bias)) with LayerNorm's `weight` and `norm_bias` over the last dimension.
struct NormedSum {
  at::Tensor y;                  ///< of x's shape
  at::Tensor normalised;         ///< of x's shape: the sum less its mean and over its deviation
  at::Tensor inverse_deviation;  ///< fp32 (rows)
};
NormedSum normed_sum(const at::Tensor& x, const at::Tensor& product, const at::Tensor& bias,
                     const at::Tensor& weight, const at::Tensor& norm_bias, double epsilon,
                     const KeptElements& kept);

struct NormedSumGradients {
  at::Tensor d_x;
  at::Tensor d_product;  ///< d_x itself where nothing is dropped
};
/// `sum` may be without y. `d_parameters`: those of bias, weight and norm_bias, as their FlatLayout lays
/// them.
NormedSumGradients normed_sum_backward(const at::Tensor& d_y, const NormedSum& sum, const at::Tensor& weight,
                                       const KeptElements& kept, const at::Tensor& d_parameters);

/// RMSNorm of dropout(x) with `weight` over the last dimension.
at::Tensor rms_normed(const at::Tensor& x, const at::Tensor& weight, double epsilon,
                      const KeptElements& kept);
/// From the gradient of that, a sum of `d_y` (terms, …, width), to that of x (B, tokens, width), to which is
/// added what its last rows get past the norm, `residual` (B, rows, width). `d_weight`: as its FlatLayout
/// lays it.
at::Tensor rms_normed_backward(const at::Tensor& d_y, const at::Tensor& x, const at::Tensor& weight,
                               double epsilon, const KeptElements& kept, const at::Tensor& residual,
                               const at::Tensor& d_weight);

/// RMSNorm of the dropped sum of x, product and bias, and the sum itself.
struct RmsNormedSum {
  at::Tensor sum, y;
};
RmsNormedSum rms_normed_sum(const at::Tensor& x, const at::Tensor& product, const at::Tensor& bias,
                            const at::Tensor& weight, double epsilon, const KeptElements& kept);
/// From the gradient of y to that of the sum (B, tokens, width), which is that of x and of product, too;
/// terms and `residual` as above. `d_parameters`: those of bias and weight, as their FlatLayout lays them.
at::Tensor rms_normed_sum_backward(const at::Tensor& d_y, const at::Tensor& sum, const at::Tensor& weight,
                                   double epsilon, const KeptElements& kept, const at::Tensor& residual,
                                   const at::Tensor& d_parameters);

/// silu(a) · b of `factors` (rows, 2, width): (rows, width).
at::Tensor gated(const at::Tensor& factors);
/// From the gradient of that to the gradient of `factors`.
at::Tensor gated_backward(const at::Tensor& d_y, const at::Tensor& factors);

/// Whether turn_heads takes heads of this size.
bool turning_fits(int64_t head_size);
/// Turns queries and keys by heads in `projected` (B, tokens, heads, 3, head size), which is dense, where
/// they stand. `rotary`: of all tokens.
void turn_heads(const at::Tensor& projected, const Rotary& rotary);
/// From the gradients of turned queries (B, the last rows, heads, head size), of turned keys and of values
/// (B, tokens, heads, head size) to that of `projected`.
at::Tensor turn_heads_back(const at::Tensor& d_queries, const at::Tensor& d_keys, const at::Tensor& d_values,
                           const Rotary& rotary);

/// dropout(gelu(product + bias)).
at::Tensor biased_gelu(const at::Tensor& product, const at::Tensor& bias, const KeptElements& kept);
/// From the gradient of that to the gradient of `product`. `d_bias` (width).
at::Tensor biased_gelu_backward(const at::Tensor& d_y, const at::Tensor& product, const at::Tensor& bias,
                                const KeptElements& kept, const at::Tensor& d_bias);

/// One to three matrices of one shape side by side: (rows, count · width). Adds up the columns to `sums`
/// (count · width).
at::Tensor joined_columns(at::TensorList matrices, const at::Tensor& sums);

/// Adds up the columns of a matrix to `sums` (width).
void add_columns(const at::Tensor& matrix, const at::Tensor& sums);

/// Whether the norms take rows of `width` elements, and biased_gelu and gated rows of `inner`.
bool gpu_rows_fit(const at::Device& device, at::ScalarType type, int64_t width, int64_t inner);

}  // namespace adtrain::kernels
