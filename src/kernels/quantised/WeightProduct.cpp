#include "kernels/quantised/WeightProduct.h"

#include <ATen/ATen.h>

#include "kernels/quantised/Dequantise.h"
#include "kernels/quantised/QuantisedProduct.h"

namespace adtrain::kernels {

at::Tensor weight_product(const at::Tensor& x, const QuantisedMatrix& matrix, const at::Tensor& bias,
                          const ProductOptions& options) {
  const at::Tensor of_type = bias.defined() ? bias.to(x.scalar_type()) : bias;
  if (x.is_cuda()) return quantised_linear(x, matrix, of_type, options);
  at::Tensor y = at::linear(x, dequantised(matrix, x.scalar_type()), of_type);
  if (options.gelu) y = at::gelu(y);
  return options.sum.defined() ? y + options.sum : y;
}

}  // namespace adtrain::kernels
