#pragma once

#include <ATen/core/Tensor.h>

#include "kernels/quantised/QuantisedMatrix.h"

namespace adtrain::kernels {

/// The weights [out_features, in_features] that the matrix stands for, computed in fp32 and rounded to `type`
/// (fp32, bf16 or fp16), on the matrix's device: what products of quantised weights are defined by. On a CPU
/// the values of bitsandbytes' own.
at::Tensor dequantised(const QuantisedMatrix& matrix, at::ScalarType type);

/// fp32: the absmax of each block of 64, or of each row of 8 bits, double quantisation undone.
at::Tensor absmax_values(const QuantisedMatrix& matrix);

}  // namespace adtrain::kernels
