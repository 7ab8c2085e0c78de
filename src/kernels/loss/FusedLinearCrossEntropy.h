#pragma once

#include <cstdint>
#include <vector>

#include <ATen/core/Tensor.h>

#include "base/MainGradients.h"

/// The head's linear layer and cross-entropy as one autograd operation on our own GPU kernels.
namespace adtrain::kernels {

/// Both scalars are on the device.
struct LinearCrossEntropySum {
  at::Tensor sum;      ///< fp32 scalar: the sum of cross-entropies
  at::Tensor correct;  ///< int64 scalar: targets that are the first of the most probable actions
};

/// encoded (B, Q, width) bf16, and the actions (B, T) of plain AD's sequences, of which the last Q are the
/// targets. `head`: weight (num_actions, width) and bias, bf16. Their gradients are added to `main_gradients`
/// if it is not null; else autograd gets them.
LinearCrossEntropySum fused_linear_cross_entropy(const at::Tensor& encoded, const at::Tensor& actions,
                                                 const std::vector<at::Tensor>& head, double label_smoothing,
                                                 MainGradients* main_gradients);

}  // namespace adtrain::kernels
