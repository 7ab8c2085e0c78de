#pragma once

#include <cstdint>

#include <driver_types.h>

namespace adtrain {

/// What is constant over all steps.
struct AdamWRule {
  double beta1, beta2, epsilon, weight_decay;
  double max_grad_norm;  ///< 0: gradients are not clipped
};

/// What the first kernel of a step computes and the second one reads.
struct AdamWFactors {
  float gradient;      ///< of the gradient's elements: clipping factor / loss scale
  float decay;         ///< learning rate · weight decay: the share of a parameter that decays
  float rate;          ///< learning rate / bias correction of the first moment
  float inverse_root;  ///< 1 / √(bias correction of the second moment)
  bool skips;          ///< the gradient overflowed, so the step is skipped
};

/// The kernels' own memory on the GPU. It must be zero before the first step. Steps must not overlap.
struct AdamWMemory {
  static constexpr int kMostParts = 512;
  float squares[kMostParts];  ///< the sum of squares of each thread block
  int overflows[kMostParts];
  unsigned arrived;  ///< thread blocks that have written their findings
  AdamWFactors factors;
  /// Of a step in parts, the sum over parts: squares, and how many parts overflow.
  float found[2];
};

enum class LowPrecisionType { kNone, kHalf, kBFloat16 };

/// What a step reads and writes. All pointers are to the GPU's memory, and arrays are aligned to 16 bytes.
struct AdamWStep {
  int64_t size;     ///< of each array; a multiple of 4
  float* gradient;  ///< set to zeros at the end
  float* parameters;
  float* first_moment;
  float* second_moment;
  void* low_precision;  ///< the low-precision copy of the parameters, of `low_precision_type`
  LowPrecisionType low_precision_type;
  const float* learning_rate;
  float* step_count;
  float* gradient_norm;      ///< written: the L2 norm before clipping
  const float* loss_factor;  ///< the loss scale, by which the gradient is divided; null for no loss scale
  float* overflow;           ///< with loss_factor only, written: 1 where the gradient is not finite, else 0
  AdamWMemory* memory;
};

/// Optimizer::step in two passes over memory. The norm is a function of the gradient alone, whatever the GPU,
/// so that ranks stay identical. With a loss scale and a gradient that is not finite, the gradient is
/// cleared, and parameters, moments and step count stay unchanged. Returns at once. Throws
/// std::invalid_argument where the size is not a multiple of 4, EnvironmentError where a kernel cannot be
/// launched.
void take_adamw_step(const AdamWRule& rule, const AdamWStep& step, cudaStream_t stream);

/// The same step in parts, where each rank updates some of the parameters: the gradient of each part is
/// measured, which adds to `memory->found`. The caller has set that to zeros before, and then adds up all
/// ranks'. One decision follows, and the update of each part. A part has its own arrays, and shares the rest
/// of AdamWStep with the others; it may be empty.
void measure_adamw_part(const AdamWRule& rule, const AdamWStep& part, cudaStream_t stream);
void decide_adamw_step(const AdamWRule& rule, const AdamWStep& step, cudaStream_t stream);
void update_adamw_part(const AdamWRule& rule, const AdamWStep& part, cudaStream_t stream);

}  // namespace adtrain
