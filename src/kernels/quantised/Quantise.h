#pragma once

#include <ATen/core/Tensor.h>

#include "kernels/quantised/QuantisedMatrix.h"

namespace adtrain::kernels {

/// Weights [out_features, in_features] of fp32, bf16 or fp16 on the CPU, quantised as bitsandbytes does on a
/// CPU, byte for byte. Values must be finite. The result is a function of the weights alone, not of threads.
/// The mean of absmax, from which double quantisation measures, is the one thing whose last bit may be
/// another elsewhere: it is libtorch's, by one thread.

/// 4 bits in blocks of 64. Each value divided by its block's absmax gets the nearest code, of two equally
/// near ones the lower one.
QuantisedMatrix quantised_4bit(const at::Tensor& weights, QuantisedCode code, bool double_quantisation);

/// 8 bits by row, LLM.int8's: the weights are rounded to fp16 first.
QuantisedMatrix quantised_rows(const at::Tensor& weights);

/// fp32: what takes rows whose largest magnitudes these are to ±127, 127 · (1 / largest) in that order; 0 for
/// rows of zeros.
at::Tensor factors_to_127(const at::Tensor& largest);

/// The same matrix without values: tensors of the right types and shapes that take no memory (libtorch's
/// device "meta").
QuantisedMatrix quantised_shape(QuantisedCode code, bool double_quantisation, int64_t out_features,
                                int64_t in_features);

}  // namespace adtrain::kernels
