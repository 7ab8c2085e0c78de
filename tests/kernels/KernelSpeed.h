#pragma once

#include <c10/cuda/CUDAStream.h>
#include <cuda_runtime.h>

namespace adtrain::testing {

/// Of one launch on the current stream, after others like it. For people, not for CTest.
template <class Launch>
double microseconds(Launch launch) {
  constexpr int kWarmUps = 3, kRepeats = 20;
  const cudaStream_t stream = c10::cuda::getCurrentCUDAStream();
  cudaEvent_t begin, end;
  cudaEventCreate(&begin);
  cudaEventCreate(&end);
  for (int k = 0; k < kWarmUps; ++k) launch();
  cudaEventRecord(begin, stream);
  for (int k = 0; k < kRepeats; ++k) launch();
  cudaEventRecord(end, stream);
  cudaEventSynchronize(end);
  float milliseconds = 0;
  cudaEventElapsedTime(&milliseconds, begin, end);
  return 1e3 * milliseconds / kRepeats;
}

}  // namespace adtrain::testing
