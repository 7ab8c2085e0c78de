#include "kernels/primitives/TensorMap.h"

#include <string>

#include <cudaTypedefs.h>

#include "base/Cuda.h"

namespace adtrain::kernels {
namespace {

/// The driver's function: no program of ours links the driver itself, which machines without a GPU lack.
PFN_cuTensorMapEncodeTiled_v12000 encoder() {
  static const auto function = [] {
    constexpr unsigned kSince = 12000;
    void* found = nullptr;
    gpu::check(cudaGetDriverEntryPointByVersion("cuTensorMapEncodeTiled", &found, kSince, cudaEnableDefault,
                                                nullptr),
               "Finding cuTensorMapEncodeTiled in the driver");
    return reinterpret_cast<PFN_cuTensorMapEncodeTiled_v12000>(found);
  }();
  return function;
}

}  // namespace

TensorMap tensor_map(const void* matrix, int64_t rows, int64_t row_bytes, int box_rows) {
  constexpr cuuint32_t kDimensions = 2, kBoxBytes = 128;
  const cuuint64_t sizes[] = {static_cast<cuuint64_t>(row_bytes), static_cast<cuuint64_t>(rows)};
  const cuuint64_t strides[] = {static_cast<cuuint64_t>(row_bytes)};
  const cuuint32_t box[] = {kBoxBytes, static_cast<cuuint32_t>(box_rows)};
  const cuuint32_t steps[] = {1, 1};
  TensorMap map;
  const auto encode = encoder();
  const CUresult result =
      encode == nullptr
          ? CUDA_ERROR_NOT_SUPPORTED
          : encode(&map.value, CU_TENSOR_MAP_DATA_TYPE_UINT8, kDimensions, const_cast<void*>(matrix), sizes,
                   strides, box, steps, CU_TENSOR_MAP_INTERLEAVE_NONE, CU_TENSOR_MAP_SWIZZLE_128B,
                   CU_TENSOR_MAP_L2_PROMOTION_L2_128B, CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE);
  if (result != CUDA_SUCCESS) {
    throw EnvironmentError("cuTensorMapEncodeTiled failed with error " + std::to_string(result) +
                           "; expected is a driver of CUDA 12 or later, see nvidia-smi");
  }
  return map;
}

}  // namespace adtrain::kernels
