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
/// The same, where rows are of chunks of 128 bytes and a box has `box_chunks` neighbouring ones of each of
/// its rows. In shared memory they lie one behind the other, each as a box of tensor_map().
TensorMap chunked_tensor_map(const void* matrix, int64_t rows, int64_t row_bytes, int box_rows,
                             int box_chunks);

/// Rows of heads, which may hold other data between them: `head_bytes` neighbouring bytes, 128, 64 or 32, of
/// so many rows, heads and sequences. Strides in bytes, multiples of 16, as is the address.
struct HeadRows {
  const void* data;
  int head_bytes, rows, heads, sequences;
  int64_t of_row, of_head, of_sequence;
};
/// A box has box_rows rows of a head. In shared memory they lie as in Tile<64>, Tile<32> or Tile<16>.
TensorMap tensor_map(const HeadRows& rows, int box_rows);

}  // namespace adtrain::kernels
