#include "model/kernels/rows/Products.h"

#include <ATen/ATen.h>

namespace adtrain::kernels {

void add_weight_gradient(const at::Tensor& d_y, const at::Tensor& x, at::Tensor d_weight) {
  at::addmm_out(d_weight, d_weight, matrix(d_y).t(), matrix(x), at::kFloat);
}

}  // namespace adtrain::kernels
