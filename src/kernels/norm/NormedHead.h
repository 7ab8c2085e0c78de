#pragma once

#include "kernels/norm/Norm.h"

namespace adtrain::kernels {

/// Whether normed_head() is for x (…, width) and so many outputs: few of both, for which one kernel takes
/// less than a norm, a product and a conversion.
bool normed_head_fits(const at::Tensor& x, int64_t outputs);

/// norm(x) Wᵀ + bias in fp32 (…, outputs), without gradients. `norm`: of which nothing is defined for none;
/// `weight` (outputs, width).
at::Tensor normed_head(const at::Tensor& x, const NormWeights& norm, const at::Tensor& weight,
                       const at::Tensor& bias);

}  // namespace adtrain::kernels
