#include "kernels/quantised/WeightProduct.h"

#include <ATen/ATen.h>
#include <c10/cuda/CUDAStream.h>

#include "kernels/norm/NormEpsilon.h"
#include "kernels/quantised/Dequantise.h"
#include "kernels/quantised/QuantisedProduct.h"

namespace adtrain::kernels {

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
  const at::Tensor weights = dequantised(as_read, at::kFloat);
  const at::Tensor products =
      at::stack({at::mv(weights, norm.weight.to(at::kFloat)), at::mv(weights, norm.bias.to(at::kFloat))});
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
