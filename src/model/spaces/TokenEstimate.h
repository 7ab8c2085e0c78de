#pragma once

#include <cstdint>

#include "environments/TaskSpaces.h"
#include "model/ModelOptions.h"

namespace adtrain {

/// Elements of the parameters' type that StepTokens keep of one step for their backward pass, by arithmetic.
/// `fused_encoder`: whether kernels of ours encode grids, of which they keep the features alone.
int64_t token_elements(const ModelOptions& options, const TaskSpaces& spaces, bool fused_encoder);
/// The same of ActionHead, for one query.
int64_t head_elements(const ModelOptions& options);
/// Bytes of one step in a batch (Batch, rows of any space).
int64_t step_bytes(const TaskSpaces& spaces);

}  // namespace adtrain
