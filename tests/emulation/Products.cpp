#include "model/kernels/rows/Products.h"

#include <ATen/ATen.h>

namespace adtrain::kernels {

/// Instead of the product's own: libtorch adds products of 16-bit matrices to fp32 on GPUs only.
void add_weight_gradient(const at::Tensor& d_y, const at::Tensor& x, at::Tensor d_weight) {
  d_weight.addmm_(matrix(d_y).t().to(at::kFloat), matrix(x).to(at::kFloat));
}

}  // namespace adtrain::kernels
