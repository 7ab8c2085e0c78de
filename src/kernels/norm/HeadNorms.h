#pragma once

#include <cstdint>
#include <vector>

#include <ATen/core/Tensor.h>

#include "kernels/norm/Norm.h"

/// LayerNorm or RMSNorm of queries and of keys over the features of each head, before attention.
namespace adtrain::kernels {

/// For heads of 32 and 64. Undefined weights stand for no norms.
struct HeadNorms {
  NormWeights queries, keys;  ///< (head size), the same for all heads

  bool defined() const { return queries.weight.defined(); }
  /// Those that are defined, in the order of the model.
  std::vector<at::Tensor> parameters() const;
  /// Of what parameters() returned.
  static HeadNorms of(at::TensorList parameters);
};

/// qkv: queries, keys and values (3, B, heads, tokens, head size) on a GPU, 16-bit, of strides that are
/// multiples of 8, whose last is 1, and with sequences one behind the other, as a projection has them ->
/// normed queries and keys (2, B, heads, tokens, head size), whose memory is (B, tokens, 2, heads, head
/// size). Autograd does not record it.
at::Tensor normed_heads(const at::Tensor& qkv, const HeadNorms& norms, double epsilon);

/// From the gradient of the normed ones, with their strides, to those of queries and keys, which it writes to
/// the first two of `d_qkv`, with strides of qkv's kind. Adds to the fp32 sums for the parameters in their
/// FlatLayout. Deterministic.
void normed_heads_backward(const at::Tensor& d_normed, const at::Tensor& qkv, const HeadNorms& norms,
                           double epsilon, const at::Tensor& d_qkv, const at::Tensor& d_parameters);

}  // namespace adtrain::kernels
