#pragma once

#include <cstdint>

#include "kernels/primitives/MatrixRows.h"

namespace adtrain::kernels {

/// The newest tokens of rows of transitions as sums of rows of tables: see NewestTokenTables.
struct NewestTokenSums {
  MatrixShape shape;  ///< of the tokens: B rows
  int transitions;    ///< T, 2 or more
  /// Columns of a batch, dense: (B, T, 2), (B, T), (B, T).
  const int32_t *states, *actions;
  const float* rewards;
  /// In fp32, aligned to 16 bytes: (values, width), and of a reward of 1 (width).
  const float *of_action, *of_x, *of_y, *of_reward;
  Vector* tokens;  ///< (B, width)
};
void sum_newest_tokens(const NewestTokenSums& job, cudaStream_t stream);

}  // namespace adtrain::kernels
