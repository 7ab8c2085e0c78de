#pragma once

#include <ATen/core/Tensor.h>

#include "kernels/norm/Norm.h"

namespace adtrain {

/// What a product with quantised weights does beside multiplying.
struct ProductOptions {
  /// LayerNorm, or without a bias RMSNorm, of x's rows before the product, with kNormEpsilon. Either
  /// normed rows or weights times the norm's are rounded to x's type, of which the parameters are. Undefined
  /// for none.
  kernels::NormWeights norm = {};
  /// norm_products() of the matrix and this norm, if they are known: LayerNorm of few rows is done behind the
  /// product then, instead of before. As constant as the matrix.
  at::Tensor norm_products = {};
  bool gelu = false;    ///< whether the result is the exact GELU of x Wᵀ + bias
  at::Tensor sum = {};  ///< (rows, out_features): added to the result; may be undefined
};

}  // namespace adtrain
