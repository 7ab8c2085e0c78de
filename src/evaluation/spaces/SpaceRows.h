#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include <ATen/core/Tensor.h>

#include "environments/Space.h"
#include "environments/TaskSpaces.h"

namespace adtrain {

/// (n, …) of what lies in n rows of a space, on the CPU and without a copy: `bytes` must outlive it.
at::Tensor rows_of(std::span<const std::byte> bytes, const Space& space, int64_t n);

/// Observations (n, …) of environments as the network reads them: where numbers hold several digits there,
/// and the environments have one each in the last axis, these are packed.
at::Tensor as_trained(const at::Tensor& observations, const TaskSpaces& trained);

}  // namespace adtrain
