#pragma once

#include "model/LossPositions.h"
#include "model/ModelOptions.h"

namespace adtrain {

/// Floating-point operations (a multiplication and an addition are two) of the forward pass of one sequence:
/// the matrix products of all blocks, as the model takes them. Attention counts the pairs of tokens that
/// read each other, so causal attention counts in half. Of the last block, only the tokens that the loss
/// reads count after the projection to queries, keys and values. Embeddings and the head (0.3% of the
/// guide's model, less of larger ones) and whatever is no matrix product are left out.
double forward_flops(const ModelOptions& model, LossPositions positions);

}  // namespace adtrain
