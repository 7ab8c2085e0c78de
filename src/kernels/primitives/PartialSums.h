#pragma once

#include <cstdint>

#include <driver_types.h>

namespace adtrain::kernels {

/// sums[i] += parts[0][i] + parts[1][i] + …, i < size, always in the same order: what the thread blocks of a
/// kernel summed, each for itself. `parts` (count, size) and `sums` (size) are in the GPU's memory, size a
/// multiple of 4. Returns at once; throws EnvironmentError where the kernel cannot be launched.
void add_parts(const float* parts, int count, int64_t size, float* sums, cudaStream_t stream);

}  // namespace adtrain::kernels
