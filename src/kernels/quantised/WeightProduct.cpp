#include "kernels/quantised/WeightProduct.h"

#include <ATen/ATen.h>

#include "kernels/norm/NormEpsilon.h"
#include "kernels/quantised/Dequantise.h"
#include "kernels/quantised/QuantisedProduct.h"

namespace adtrain::kernels {

at::Tensor normed_rows(const at::Tensor& x, const NormWeights& norm) {
  if (x.is_cuda()) return normed_input(x, norm, kNormEpsilon, /*kept=*/{}).y;
  if (!norm.bias.defined()) return at::rms_norm(x, norm.weight.sizes(), norm.weight, kNormEpsilon);
  return at::layer_norm(x, norm.weight.sizes(), norm.weight, norm.bias, kNormEpsilon);
}

at::Tensor weight_product(const at::Tensor& x, const QuantisedMatrix& matrix, const at::Tensor& bias,
                          const ProductOptions& options) {
  const at::Tensor of_type = bias.defined() ? bias.to(x.scalar_type()) : bias;
  if (x.is_cuda()) return quantised_linear(x, matrix, of_type, options);
  const at::Tensor input = options.norm.weight.defined() ? normed_rows(x, options.norm) : x;
  at::Tensor y = at::linear(input, dequantised(matrix, x.scalar_type()), of_type);
  if (options.gelu) y = at::gelu(y);
  return options.sum.defined() ? y + options.sum : y;
}

}  // namespace adtrain::kernels
