#pragma once

#include <cstdint>

#include <cuda_bf16.h>
#include <driver_types.h>

/// The head of plain AD with its cross-entropy, and the gradients of both. All arrays are in the GPU's
/// memory, dense and row-major, borrowed; calls return at once and throw EnvironmentError where a kernel
/// cannot be launched. AlgorithmDistillation's plain loss is the definition of what is right, except that
/// logits are not rounded.
namespace adtrain::kernels {

/// Each of B sequences has Q rows, one for each of its last actions.
struct LinearCrossEntropyShape {
  int64_t rows;     ///< R = B · Q
  int queries;      ///< Q: 1 … transitions
  int transitions;  ///< L
  int width;        ///< D, a multiple of 32
  int actions;      ///< A, 2 … kMostActions

  static constexpr int kMostActions = 8;
};

struct HeadWeights {
  const __nv_bfloat16 *weight, *bias;  ///< (A, D), (A)
};

/// How many sums linear_cross_entropy writes: each is over as many rows as a thread block takes.
int linear_cross_entropy_parts(const LinearCrossEntropyShape& shape);

/// Each sum is over its own rows: of cross-entropies with label smoothing, and of right predictions, where
/// the first of the most probable actions counts.
struct LinearCrossEntropySums {
  float* losses;     ///< (linear_cross_entropy_parts)
  int64_t* correct;  ///< (linear_cross_entropy_parts)
};

/// encoded (R, D), taken actions (B, L) -> the sums, and the derivative of each row's loss with respect to
/// its logits, `slopes` (R, kMostActions) with zeros after the actions.
void linear_cross_entropy(const LinearCrossEntropyShape& shape, const __nv_bfloat16* encoded,
                          const HeadWeights& weights, const int32_t* taken, float label_smoothing,
                          float* slopes, const LinearCrossEntropySums& sums, cudaStream_t stream);

/// Where the gradients of the head's weight and bias lie in a part, and its size: as FlatLayout lays them.
struct HeadGradients {
  int bias, total;
  static constexpr HeadGradients of(int actions, int width) {
    const int weight = (actions * width + 63) / 64 * 64;
    return {weight, weight + (actions + 63) / 64 * 64};
  }
};

/// How many parts linear_cross_entropy_backward writes.
int linear_cross_entropy_backward_parts(const LinearCrossEntropyShape& shape);

/// From the gradient of the loss, one fp32 number, to that of `encoded` (R, D) and to `parts` (parts,
/// HeadGradients.total), which add up to those of the head.
void linear_cross_entropy_backward(const LinearCrossEntropyShape& shape, const float* gradient,
                                   const float* slopes, const __nv_bfloat16* encoded,
                                   const HeadWeights& weights, __nv_bfloat16* d_encoded, float* parts,
                                   cudaStream_t stream);

}  // namespace adtrain::kernels
