#pragma once

#include <cstdint>

#include <cuda.h>

namespace adtrain::kernels {

/// A matrix in global memory of which boxes are copied to shared memory, for a kernel's parameters
/// (__grid_constant__).
struct TensorMap {
  CUtensorMap value;
};

/// `matrix`: (rows, row_bytes), dense, where row_bytes is a multiple of 16, as is its address. A box has
/// box_rows rows, 256 at most, of 128 bytes. In shared memory, where it begins at a multiple of 1024, its
/// rows are contiguous; their chunks of 16 bytes are exchanged as in Tile<64>, so that a column of them lies
/// in different banks. Throws EnvironmentError where the driver refuses.
TensorMap tensor_map(const void* matrix, int64_t rows, int64_t row_bytes, int box_rows);

}  // namespace adtrain::kernels
