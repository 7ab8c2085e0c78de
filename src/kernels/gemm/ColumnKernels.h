#pragma once

#include "kernels/primitives/MatrixRows.h"

namespace adtrain::kernels {

constexpr int kMaxJoined = 3;

/// Puts matrices of one width side by side, and sums up the columns of the result.
struct JoinColumns {
  MatrixShape shape;  ///< of the result
  const Vector* matrices[kMaxJoined];
  int matrix_count;
  Vector* joined;  ///< null: the sums are all that is wanted
  float* parts;    ///< (column_parts, width): sums over rows that add up to those of all
  int part_count;
};
void join_columns(const JoinColumns& call, cudaStream_t stream);

}  // namespace adtrain::kernels
