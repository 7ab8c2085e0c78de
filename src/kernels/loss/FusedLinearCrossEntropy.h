#pragma once

#include <cstdint>
#include <vector>

#include <ATen/core/Tensor.h>

#include "base/MainGradients.h"

/// Linear layer and cross-entropy of the head as one operation of autograd by our own GPU kernels.
namespace adtrain::kernels {

/// Both on the device.
struct LinearCrossEntropySum {
  at::Tensor sum;      ///< fp32 scalar: of cross-entropies
  at::Tensor correct;  ///< int64 scalar: targets that are the first of the most probable actions
};

/// encoded (B, Q, width) bf16 and the actions (B, T) of plain rows, of which the last Q are the targets.
/// `head`: weight (num_actions, width) and bias, bf16; their gradients go to `main_gradients` if there is
/// one.
LinearCrossEntropySum fused_linear_cross_entropy(const at::Tensor& encoded, const at::Tensor& actions,
                                                 const std::vector<at::Tensor>& head, double label_smoothing,
                                                 MainGradients* main_gradients);

}  // namespace adtrain::kernels
