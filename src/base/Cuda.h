#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include <cuda_runtime.h>

#include "base/Error.h"

/// CUDA's memory with ownership and errors as in the rest of the code; for .cu files.
namespace adtrain::gpu {

/// Throws EnvironmentError that names the call.
inline void check(cudaError_t result, const char* call) {
  if (result == cudaSuccess) return;
  cudaGetLastError();  // clears the error, so that no other call reports it
  throw EnvironmentError(std::string(call) + " failed: " + cudaGetErrorString(result) +
                         "; see nvidia-smi for the GPU's state and for who else uses it, or set device: cpu");
}

/// `count` divided by `by`, rounded up.
constexpr int64_t divided_up(int64_t count, int64_t by) {
  return (count + by - 1) / by;
}

/// An array in the current GPU's memory, initialised to zero. Transfers are complete when they return, for
/// all streams.
template <class Value>
class DeviceArray {
 public:
  explicit DeviceArray(size_t size) : size_(size) {
    check(cudaMalloc(&data_, size * sizeof(Value)), "cudaMalloc");
    check(cudaMemset(data_, 0, size * sizeof(Value)), "cudaMemset");
    check(cudaStreamSynchronize(cudaStreamLegacy), "cudaMemset");
  }
  ~DeviceArray() { cudaFree(data_); }
  DeviceArray(const DeviceArray&) = delete;
  DeviceArray& operator=(const DeviceArray&) = delete;

  Value* data() { return data_; }
  size_t size() const { return size_; }

  void upload(const Value* from, size_t count) {
    check(cudaMemcpy(data_, from, count * sizeof(Value), cudaMemcpyHostToDevice), "cudaMemcpy to the GPU");
    // From pageable memory cudaMemcpy returns before the transfer is complete.
    check(cudaStreamSynchronize(cudaStreamLegacy), "cudaMemcpy to the GPU");
  }
  void download(Value* to, size_t count) const {
    check(cudaMemcpy(to, data_, count * sizeof(Value), cudaMemcpyDeviceToHost), "cudaMemcpy from the GPU");
  }

 private:
  Value* data_ = nullptr;
  size_t size_;
};

}  // namespace adtrain::gpu
