#pragma once

#include <driver_types.h>

#include "base/Cuda.h"
#include "emulation/Emulator.h"

/// Stands in the place of src/base/Launch.cuh: starts kernels in the emulator.
namespace adtrain::gpu {

inline int multiprocessors() {
  return emulation::kMultiprocessors;
}

template <class... Parameters, class... Arguments>
void launch(const char* name, void (*kernel)(Parameters...), dim3 blocks, dim3 threads, int shared_bytes,
            cudaStream_t, const Arguments&... arguments) {
  emulation::launch(name, {blocks.x, blocks.y, blocks.z}, threads, shared_bytes,
                    [&] { kernel(arguments...); });
}

}  // namespace adtrain::gpu
