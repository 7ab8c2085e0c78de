#pragma once

#include <cstdint>

#include <driver_types.h>

namespace adtrain {

/// LossSums::add as one kernel. Adds *cross_entropies, *correct and `targets` to the first three of `sums`
/// (4). Where *cross_entropies is not finite, it only adds 1 to the last. All pointers are to the GPU's
/// memory. Returns at once; throws EnvironmentError where the kernel cannot be launched.
void add_loss(double* sums, const float* cross_entropies, const int64_t* correct, int64_t targets,
              cudaStream_t stream);

}  // namespace adtrain
