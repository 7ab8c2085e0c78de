#pragma once

#include <cstdint>

#include <driver_types.h>

namespace adtrain {

/// See copy_pinned(): both are aligned to 16 bytes, and one of them is on the current GPU.
void copy_pinned_bytes(void* to, const void* from, int64_t bytes, cudaStream_t stream);

}  // namespace adtrain
