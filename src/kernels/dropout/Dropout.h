#pragma once

#include <ATen/core/Tensor.h>

namespace adtrain::kernels {

/// Dropout of x (B, …, width), which may be a view, by the next draw of this thread's DropoutStream. Of fp32
/// and 16-bit floats, on a GPU or the CPU, where the masks are the same; none is stored. Differentiable.
/// Returns x itself where the rate is 0.
at::Tensor dropout(const at::Tensor& x, double rate);

}  // namespace adtrain::kernels
