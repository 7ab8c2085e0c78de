#pragma once

#include <driver_types.h>

#include "c10/cuda/CUDAStream.h"
#include "emulation/Emulator.h"

/// Stands in the place of libtorch's header: the emulator's device.
namespace at::cuda {

struct EmulatedDevice {
  int multiProcessorCount;  // the name of cudaDeviceProp
};
inline const EmulatedDevice* getCurrentDeviceProperties() {
  static constexpr EmulatedDevice kDevice = {adtrain::emulation::kMultiprocessors};
  return &kDevice;
}
using c10::cuda::getCurrentCUDAStream;

}  // namespace at::cuda
