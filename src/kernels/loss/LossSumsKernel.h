#pragma once

#include <cstdint>

#include <driver_types.h>

namespace adtrain {

/// LossSums::add by one kernel: adds to `sums` (4), in their order, *cross_entropies, *correct and `targets`;
/// where *cross_entropies is not finite only 1 to the last of them. All pointers are the GPU's. Returns at
/// once; throws EnvironmentError where the kernel cannot be launched.
void add_loss(double* sums, const float* cross_entropies, const int64_t* correct, int64_t targets,
              cudaStream_t stream);

}  // namespace adtrain
