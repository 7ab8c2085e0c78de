#pragma once

#include <cstdint>

#include <driver_types.h>

namespace adtrain {

/// Copies between pinned memory and the GPU's, both aligned to 16 bytes, on the stream. Returns at once, and
/// may be captured. Few bytes are copied by a kernel that reads or writes pinned memory itself: a copy engine
/// takes some µs longer to begin. Throws EnvironmentError where CUDA refuses.
void copy_pinned(void* to, const void* from, int64_t bytes, cudaStream_t stream);

}  // namespace adtrain
