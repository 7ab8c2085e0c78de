#include "kernels/primitives/TensorMap.h"

#include <array>
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

constexpr cuuint32_t kChunkBytes = 128;

/// `sizes`, `strides` in bytes of all dimensions but the first, `box`: of each dimension, of bytes.
template <size_t Dimensions>
TensorMap encoded(const void* matrix, const std::array<cuuint64_t, Dimensions>& sizes,
                  const std::array<cuuint64_t, Dimensions - 1>& strides,
                  const std::array<cuuint32_t, Dimensions>& box,
                  CUtensorMapSwizzle swizzle = CU_TENSOR_MAP_SWIZZLE_128B) {
  std::array<cuuint32_t, Dimensions> steps = {};
  steps.fill(1);
  TensorMap map;
  const auto encode = encoder();
  const CUresult result =
      encode == nullptr
          ? CUDA_ERROR_NOT_SUPPORTED
          : encode(&map.value, CU_TENSOR_MAP_DATA_TYPE_UINT8, Dimensions, const_cast<void*>(matrix),
                   sizes.data(), strides.data(), box.data(), steps.data(), CU_TENSOR_MAP_INTERLEAVE_NONE,
                   swizzle, CU_TENSOR_MAP_L2_PROMOTION_L2_128B, CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE);
  if (result != CUDA_SUCCESS) {
    throw EnvironmentError("cuTensorMapEncodeTiled failed with error " + std::to_string(result) +
                           "; expected is a driver of CUDA 12 or later, see nvidia-smi");
  }
  return map;
}

/// That of tiles whose rows have so many bytes.
CUtensorMapSwizzle swizzle_of(int row_bytes) {
  constexpr int kHalf = kChunkBytes / 2;
  if (row_bytes < kHalf) return CU_TENSOR_MAP_SWIZZLE_32B;
  return row_bytes == kHalf ? CU_TENSOR_MAP_SWIZZLE_64B : CU_TENSOR_MAP_SWIZZLE_128B;
}

}  // namespace

TensorMap tensor_map(const void* matrix, int64_t rows, int64_t row_bytes, int box_rows) {
  return encoded<2>(matrix, {static_cast<cuuint64_t>(row_bytes), static_cast<cuuint64_t>(rows)},
                    {static_cast<cuuint64_t>(row_bytes)}, {kChunkBytes, static_cast<cuuint32_t>(box_rows)});
}

TensorMap chunked_tensor_map(const void* matrix, int64_t rows, int64_t row_bytes, int box_rows,
                             int box_chunks) {
  return encoded<3>(
      matrix, {kChunkBytes, static_cast<cuuint64_t>(rows), static_cast<cuuint64_t>(row_bytes) / kChunkBytes},
      {static_cast<cuuint64_t>(row_bytes), kChunkBytes},
      {kChunkBytes, static_cast<cuuint32_t>(box_rows), static_cast<cuuint32_t>(box_chunks)});
}

TensorMap tensor_map(const HeadRows& rows, int box_rows) {
  const auto count = [](int number) { return static_cast<cuuint64_t>(number); };
  const auto stride = [](int64_t bytes) { return static_cast<cuuint64_t>(bytes); };
  return encoded<4>(rows.data,
                    {count(rows.head_bytes), count(rows.rows), count(rows.heads), count(rows.sequences)},
                    {stride(rows.of_row), stride(rows.of_head), stride(rows.of_sequence)},
                    {static_cast<cuuint32_t>(rows.head_bytes), static_cast<cuuint32_t>(box_rows), 1, 1},
                    swizzle_of(rows.head_bytes));
}

}  // namespace adtrain::kernels
