#pragma once

#include "kernels/block/pre_norm/PreNormTensors.h"

/// The MLP sublayer of a fused pre-norm block, of width 32 or 64; `rows` is S · R. Calls return at once and
/// throw EnvironmentError where a kernel cannot be launched.
namespace adtrain::kernels {

/// n2 `normed` (rows, D) and x1 (rows, D) -> y (rows, D).
void swiglu(int64_t rows, int width, const SwigluWeights& weights, const __nv_bfloat16* normed,
            const __nv_bfloat16* x1, __nv_bfloat16* y, cudaStream_t stream);

/// The hidden units are divided among this many thread blocks. Each computes its own term of n2's gradient.
constexpr int swiglu_backward_terms(int width) {
  return width / 32;
}
/// How many partial sums swiglu_backward() writes.
int swiglu_backward_parts(int64_t rows, int width);

/// Gradient `dy` of y (rows, D) -> `dnormed` (terms, rows, D), whose terms add up to the gradient of n2, and
/// `parts` (swiglu_backward_parts, SwigluGradients::total), the partial sums of the weights' gradients. It
/// writes all of `parts`. Deterministic.
void swiglu_backward(int64_t rows, int width, const SwigluWeights& weights, const __nv_bfloat16* normed,
                     const __nv_bfloat16* dy, __nv_bfloat16* dnormed, float* parts, cudaStream_t stream);

}  // namespace adtrain::kernels
