#pragma once

#include "emulation/Transfers.h"

/// Stands in the place of src/kernels/primitives/TensorMap.h, where each function is described.
namespace adtrain::kernels {

using TensorMap = emulation::BoxedMatrix;

inline TensorMap tensor_map(const void* matrix, int64_t rows, int64_t row_bytes, int box_rows) {
  constexpr int kBoxBytes = 128;
  return {static_cast<const char*>(matrix), rows, row_bytes, box_rows, kBoxBytes};
}

struct HeadRows {
  const void* data;
  int head_bytes, rows, heads, sequences;
  int64_t of_row, of_head, of_sequence;
};
inline TensorMap tensor_map(const HeadRows& rows, int box_rows) {
  return {static_cast<const char*>(rows.data),
          rows.rows,
          rows.head_bytes,
          box_rows,
          rows.head_bytes,
          rows.of_row,
          rows.of_head,
          rows.of_sequence,
          rows.heads,
          rows.sequences};
}

}  // namespace adtrain::kernels
