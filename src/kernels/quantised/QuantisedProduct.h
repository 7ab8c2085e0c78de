#pragma once

#include <ATen/core/Tensor.h>
#include <c10/core/ScalarType.h>

#include "kernels/quantised/ProductOptions.h"
#include "kernels/quantised/QuantisedKernels.h"
#include "kernels/quantised/QuantisedMatrix.h"

/// Products with quantised weights on a GPU. Calls return at once, on the current stream. They may be
/// captured in CUDA graphs, and any thread may call them. Nothing is differentiable.
/// What has written the matrix has ended before the first call: kernels begin to read it before those ahead
/// of them on the stream have ended. It is on the GPU, its block sizes are powers of two, 32 or more; what is
/// not so, or does not fit the other operands, is a std::logic_error that says what was found.
namespace adtrain {

/// input (rows, in) in fp16, bf16 or fp32 · the weights' transpose + bias (out), which may be undefined, and
/// what the options say -> (rows, out) in the input's type. Sums are in fp32.
///
/// Codes become numbers in registers, and no other form of the weights is in memory, where our kernels run:
/// fp16 and bf16, in_features a multiple of 64, up to 32 rows on GPUs of compute capability 9.0 and later, up
/// to 1024 on 9.0 where ManyRowsPlan.h expects them to be faster than the library. They read 4-bit weights
/// rounded to the input's type. Elsewhere the weights are dequantised, for the call, and a library
/// multiplies.
at::Tensor quantised_linear(const at::Tensor& input, const QuantisedMatrix& matrix, const at::Tensor& bias,
                            const ProductOptions& options = {});

/// The same by a certain way, for tests and benchmarks. A way that does not fit the operands or the GPU is a
/// std::logic_error, too.
at::Tensor quantised_linear_by(const kernels::ProductPlan& plan, const at::Tensor& input,
                               const QuantisedMatrix& matrix, const at::Tensor& bias,
                               const ProductOptions& options = {});

/// Whether quantised_linear() does a LayerNorm of its input behind itself, where ProductOptions'
/// norm_products are known.
bool norms_behind_product(const at::Tensor& input, const QuantisedMatrix& matrix);

/// The weights (out, in) in fp32, or rounded once to fp16 or bf16.
at::Tensor dequantised_on_gpu(const QuantisedMatrix& matrix, at::ScalarType type);

}  // namespace adtrain
