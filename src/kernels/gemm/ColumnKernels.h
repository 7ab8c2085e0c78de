#pragma once

#include "kernels/primitives/MatrixRows.h"

namespace adtrain::kernels {

constexpr int kMaxJoined = 3;

/// Puts matrices of one width side by side and sums the columns of the result.
struct JoinColumns {
  MatrixShape shape;  ///< of the result
  const Vector* matrices[kMaxJoined];
  int matrix_count;
  Vector* joined;  ///< null: only the sums are computed
  float* parts;    ///< (column_parts, width): partial sums over rows
  int part_count;
};
void join_columns(const JoinColumns& call, cudaStream_t stream);

}  // namespace adtrain::kernels
