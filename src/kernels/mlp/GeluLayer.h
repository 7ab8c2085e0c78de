#pragma once

#include <ATen/core/Tensor.h>

#include "kernels/KeptElements.h"
#include "kernels/activation/GeluKind.h"
#include "kernels/gemm/Gemm.h"

namespace adtrain::kernels {

/// The hidden layer of an MLP, y = dropout(gelu(x Wᵀ + b)), with what its backward pass needs. Everything is
/// dense, on a GPU, in bf16 or fp16; sums are in fp32. Where the GPU and the sizes allow it, GELU and dropout
/// are in the epilogue of the product (GeluProducts.h), and their gradient in that of the next layer's input
/// gradient; with dropout, which must be of the exact GELU then, `inner` must be a multiple of
/// kGeluTileColumns, and its bits aligned to 16 bytes. Elsewhere they are kernels of their own between
/// products. What Gemm.h says about threads and autotuning holds here too.
class GeluLayer {
 public:
  GeluLayer() = default;
  /// x (…, in), weight (inner, in), bias (inner).
  GeluLayer(const at::Tensor& x, const at::Tensor& weight, const at::Tensor& bias, KeptElements kept,
            Autotuning autotuning, GeluKind kind = GeluKind::kExact);

  /// (rows, inner).
  const at::Tensor& y() const { return y_; }

  /// Frees what the backward pass alone needs, which must not be called then.
  void free_slopes() { for_backward_.reset(); }

  /// Whether GELU is in the epilogue.
  bool in_epilogue() const { return in_epilogue_; }

  /// The gradient of x Wᵀ (rows, inner) from that of the product which y goes into, d_out (…, out), and
  /// that product's weight (out, inner). Adds the gradient of the bias to `d_bias`.
  at::Tensor backward(const at::Tensor& d_out, const at::Tensor& next_weight, const at::Tensor& bias,
                      const at::Tensor& d_bias) const;

 private:
  /// x Wᵀ or, where `in_epilogue_`, the derivatives of y by x Wᵀ + b as GeluProduct stores them.
  at::Tensor for_backward_;
  at::Tensor y_;
  KeptElements kept_;
  GeluKind kind_ = GeluKind::kExact;
  bool in_epilogue_ = false;
};

}  // namespace adtrain::kernels
