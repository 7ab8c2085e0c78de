#pragma once

#include <cstdint>

#include <driver_types.h>

namespace adtrain::kernels {

/// Partial sums that a kernel ahead on the stream has written, and that the kernel which gets this adds up:
/// sums[i] += parts[0][i] + parts[1][i] + …, always in the same order. As for add_parts(); parts may be null.
struct UnaddedParts {
  const float* parts;  ///< (count, size)
  int count;
  int64_t size;
  float* sums;  ///< (size)
};

/// sums[i] += parts[0][i] + parts[1][i] + … for i < size, always in the same order. The parts are the partial
/// sums of a kernel's thread blocks. `parts` (count, size) and `sums` (size) are in the GPU's memory; size is
/// a multiple of 4. Returns at once; throws EnvironmentError where the kernel cannot be launched.
void add_parts(const float* parts, int count, int64_t size, float* sums, cudaStream_t stream);

}  // namespace adtrain::kernels
