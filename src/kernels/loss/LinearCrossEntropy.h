#pragma once

#include <cstdint>

#include <cuda_bf16.h>
#include <driver_types.h>

#include "kernels/primitives/MatrixRows.h"

/// The head of plain AD with its cross-entropy, and the gradients of both. All arrays are in the GPU's
/// memory, dense and row-major, borrowed. Calls return at once and throw EnvironmentError where a kernel
/// cannot be launched. AlgorithmDistillation's plain loss defines the correct results, except that logits are
/// not rounded here.
namespace adtrain::kernels {

/// Each of B sequences has Q rows, one for each of its last Q actions.
struct LinearCrossEntropyShape {
  int64_t rows;     ///< R = B · Q
  int queries;      ///< Q: 1 … transitions
  int transitions;  ///< L
  int width;        ///< D, a multiple of 32
  int actions;      ///< A, 2 … kMostActions
  ShortType type = ShortType::kBFloat16;

  static constexpr int kMostActions = 8;
};

/// Like `encoded` and its gradient below, of bits of the shape's type.
struct HeadWeights {
  const __nv_bfloat16 *weight, *bias;  ///< (A, D), (A)
};

/// How many partial sums linear_cross_entropy writes: one for each 1024 rows, the last ones too.
int linear_cross_entropy_parts(const LinearCrossEntropyShape& shape);

/// Each partial sum is over the rows of one cluster of thread blocks. `losses` sums cross-entropies with
/// label smoothing. `correct` counts correct predictions; the prediction is the first of the most probable
/// actions.
struct LinearCrossEntropySums {
  float* losses;     ///< (linear_cross_entropy_parts)
  int64_t* correct;  ///< (linear_cross_entropy_parts)
};

/// encoded (R, D), taken actions (B, L) -> the sums and `slopes` (R, kMostActions), the derivative of each
/// row's loss with respect to its logits, with zeros beyond the last action.
void linear_cross_entropy(const LinearCrossEntropyShape& shape, const __nv_bfloat16* encoded,
                          const HeadWeights& weights, const int32_t* taken, float label_smoothing,
                          float* slopes, const LinearCrossEntropySums& sums, cudaStream_t stream);

/// Where the gradients of the head's weight and bias begin in a part, and its size; the layout is
/// FlatLayout's.
struct HeadGradients {
  int bias, total;
  static constexpr HeadGradients of(int actions, int width) {
    const int weight = (actions * width + 63) / 64 * 64;
    return {weight, weight + (actions + 63) / 64 * 64};
  }
};

/// How many partial sums linear_cross_entropy_backward writes.
int linear_cross_entropy_backward_parts(const LinearCrossEntropyShape& shape);

/// From the gradient of the loss, one fp32 number, to the gradient of `encoded` (R, D) and to the partial
/// sums `parts` (parts, HeadGradients.total) of the head's gradients.
void linear_cross_entropy_backward(const LinearCrossEntropyShape& shape, const float* gradient,
                                   const float* slopes, const __nv_bfloat16* encoded,
                                   const HeadWeights& weights, __nv_bfloat16* d_encoded, float* parts,
                                   cudaStream_t stream);

}  // namespace adtrain::kernels
