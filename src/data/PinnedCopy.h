#pragma once

#include <ATen/core/Tensor.h>

namespace adtrain {

/// Copies between pinned memory and a GPU's, on its current stream: `from` to `to`, of the same type and
/// sizes, both dense and aligned to 16 bytes. Returns at once, and may be captured. Few bytes are copied by a
/// kernel that reads or writes pinned memory itself: a copy engine takes some µs longer to begin. Throws
/// EnvironmentError where CUDA refuses.
void copy_pinned(const at::Tensor& to, const at::Tensor& from);

}  // namespace adtrain
