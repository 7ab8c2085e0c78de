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
/// box_rows rows, 256 at most, of box_bytes bytes: 32, 64 or 128. In shared memory, where it begins at a
/// multiple of 8 * box_bytes, its rows are contiguous; their chunks of 16 bytes are exchanged so that a
/// column of them lies in different banks: of 128 bytes as in Tile<64>, of 64 bytes as in Tile<32>, of 32
/// bytes where row % 8 is above 3. Throws EnvironmentError where the driver refuses.
TensorMap tensor_map(const void* matrix, int64_t rows, int64_t row_bytes, int box_rows, int box_bytes);

}  // namespace adtrain::kernels
