#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include <ATen/core/Tensor.h>

#include "model/Parameters.h"

namespace adtrain {

/// What a reader wants to know of a tensor's values at a glance. Minimum, maximum, mean and deviation are
/// over the finite values; all 0 where there are none.
struct TensorStatistics {
  int64_t values = 0;
  int64_t not_finite = 0;  ///< NaN or infinite
  double minimum = 0, maximum = 0, mean = 0;
  double deviation = 0;  ///< root of the mean squared deviation from the mean

  /// Of a tensor of numbers or booleans on any device.
  static TensorStatistics of(const at::Tensor& tensor);
};

/// Throws CheckpointError at the first value that is not finite, which begins with `whose`, such as
/// "large.pt: ".
void expect_finite(const std::vector<NamedTensor>& tensors, const std::string& whose);

}  // namespace adtrain
