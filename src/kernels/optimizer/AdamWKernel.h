#pragma once

#include <cstdint>

#include <driver_types.h>

namespace adtrain {

/// What is the same in every step.
struct AdamWRule {
  double beta1, beta2, epsilon, weight_decay;
  double max_grad_norm;  ///< 0: gradients are not clipped
};

/// What the first kernel of a step finds out and the second one reads.
struct AdamWFactors {
  float gradient;      ///< on its elements: the loss scale's reciprocal times the clipping
  float decay;         ///< the share that weight decay takes of a parameter
  float rate;          ///< the learning rate, divided by the first moment's bias correction
  float inverse_root;  ///< 1 / the square root of the second moment's bias correction
  bool skips;          ///< the gradient overflowed
};

/// The kernels' own memory on the GPU, zeros before the first step. One step at a time.
struct AdamWMemory {
  static constexpr int kMostParts = 512;
  float squares[kMostParts];  ///< by thread block: its sum of squares
  int overflows[kMostParts];
  unsigned arrived;  ///< thread blocks that have written theirs
  AdamWFactors factors;
};

enum class LowPrecisionType { kNone, kHalf, kBFloat16 };

/// What a step reads and writes; all pointers are the GPU's, arrays are aligned to 16 bytes.
struct AdamWStep {
  int64_t size;     ///< of each array; a multiple of 4
  float* gradient;  ///< zeros afterwards
  float* parameters;
  float* first_moment;
  float* second_moment;
  void* low_precision;  ///< the parameters once more, rounded to `image_type`
  LowPrecisionType low_precision_type;
  const float* learning_rate;
  float* step_count;
  float* gradient_norm;      ///< written: the L2 norm before clipping
  const float* loss_factor;  ///< what the gradient is to be divided by; null: it is as it should be
  float* overflow;           ///< with loss_factor, written: 1 where the gradient is not finite, else 0
  AdamWMemory* memory;
};

/// Optimizer::step in two passes over memory. The norm is a function of the gradient alone, whatever the GPU,
/// so that ranks stay alike. Where the gradient overflows, it is cleared, and parameters, moments and the
/// count stay. Returns at once; throws std::invalid_argument where the size is not a multiple of 4,
/// EnvironmentError where a kernel cannot be launched.
void take_adamw_step(const AdamWRule& rule, const AdamWStep& step, cudaStream_t stream);

}  // namespace adtrain
