#include "kernels/quantised/WeightProduct.h"

#include <ATen/ATen.h>
#include <c10/cuda/CUDAStream.h>

#include "kernels/norm/NormEpsilon.h"
#include "kernels/quantised/Dequantise.h"
#include "kernels/quantised/QuantisedProduct.h"

namespace adtrain::kernels {
namespace {

/// What the codes stand for without their scales.
at::Tensor unscaled(const QuantisedMatrix& matrix, at::ScalarType type) {
  constexpr float kGreatestCode = 127;  // of 8 bits, the unit of their scales
  QuantisedMatrix of_ones = matrix;
  of_ones.nested_absmax = at::Tensor();
  of_ones.absmax = at::full(matrix.absmax.sizes(), matrix.code == QuantisedCode::int8 ? kGreatestCode : 1.0f,
                            matrix.absmax.options().dtype(at::kFloat));
  return dequantised(of_ones, type);
}

}  // namespace

at::Tensor normed_rows(const at::Tensor& x, const NormWeights& norm) {
  if (x.is_cuda()) return normed_input(x, norm, kNormEpsilon, /*kept=*/{}).y;
  if (!norm.bias.defined()) return at::rms_norm(x, norm.weight.sizes(), norm.weight, kNormEpsilon);
  return at::layer_norm(x, norm.weight.sizes(), norm.weight, norm.bias, kNormEpsilon);
}

at::Tensor norm_products(const at::Tensor& x, const QuantisedMatrix& matrix, const NormWeights& norm) {
  if (!norm.bias.defined() || !norms_behind_product(x, matrix)) return {};
  // What a product adds up for a row's mean is taken off again: that of other roundings would leave a rest,
  // which grows with the number of features.
  QuantisedMatrix as_read = matrix;
  if (matrix.code_map.defined()) as_read.code_map = matrix.code_map.to(x.scalar_type()).to(at::kFloat);
  const at::Tensor scales = dequantised(as_read, at::kFloat), values = unscaled(as_read, x.scalar_type());
  const at::Tensor of_bias = at::mv(scales, norm.bias.to(at::kFloat));
  scales.div_(values).masked_fill_(values == 0, 0);
  const at::Tensor of_weight = scales.mul_(values.mul_(norm.weight.to(x.scalar_type()))).sum(1);
  const at::Tensor products = at::stack({of_weight, of_bias});
  // A product's kernel reads them before the kernels ahead of it on the stream have ended.
  if (products.is_cuda()) c10::cuda::getCurrentCUDAStream(products.get_device()).synchronize();
  return products;
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
