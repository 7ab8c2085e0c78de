#pragma once

#include <ATen/core/Tensor.h>

#include "kernels/embedding/FusedEmbedding.h"

/// The newest token of rows that grow step by step, where a token is a sum of what its step's numbers add to
/// it, each for itself: of tables that hold this for each value, in one kernel. The plain operators of
/// PreviousTokens define the correct results.
namespace adtrain::kernels {

/// In fp32. All biases are among the rows of x.
struct NewestTokenTables {
  at::Tensor actions;  ///< (actions, width): of the action before
  at::Tensor x, y;     ///< (grid size, width): of the state's coordinates
  at::Tensor reward;   ///< (width): of a reward of 1 before
};

/// Whether there is a kernel for tokens of this type and width.
bool newest_tokens_fit(at::ScalarType type, int64_t width);

/// (B, 1, width) of the last of two or more transitions.
at::Tensor newest_tokens(const TransitionColumns& transitions, const NewestTokenTables& tables,
                         at::ScalarType type);

}  // namespace adtrain::kernels
