#pragma once

#include <cstdint>

#include <driver_types.h>

namespace adtrain {

/// LossSums::add as one kernel. Where *losses is finite, adds *losses, *correct and `targets` to the first
/// three of `sums` (5), else 1 to the last. `counted`, unless it is null, points to what takes the place of
/// `targets`. Adds 1 to the fourth unless `correct` is null. All pointers are
/// to the GPU's memory. Returns at once; throws EnvironmentError where the kernel cannot be launched.
void add_loss(double* sums, const float* losses, const int64_t* correct, int64_t targets,
              const int64_t* counted, cudaStream_t stream);

}  // namespace adtrain
