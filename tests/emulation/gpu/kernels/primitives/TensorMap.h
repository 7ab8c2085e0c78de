#pragma once

#include "emulation/Transfers.h"

/// Stands in the place of src/kernels/primitives/TensorMap.h, where each function is described.
namespace adtrain::kernels {

using TensorMap = emulation::BoxedMatrix;

inline TensorMap tensor_map(const void* matrix, int64_t rows, int64_t row_bytes, int box_rows) {
  constexpr int kBoxBytes = 128;
  return {static_cast<const char*>(matrix), rows, row_bytes, box_rows, kBoxBytes};
}

}  // namespace adtrain::kernels
