#include "model/PlainSequence.h"

#include <ATen/ATen.h>

#include "model/TransitionTokens.h"

namespace adtrain {

PlainSequence PlainSequence::of(const Batch& batch, const ModelShape& shape, LossPositions positions,
                                at::ScalarType type) {
  const int64_t length = batch.states.size(1);
  const at::Tensor features = transition_features(batch, shape, type);
  const at::Tensor states = state_index(batch.states, shape);
  const at::Tensor steps = at::arange(length, states.options().dtype(at::kLong));
  if (positions == LossPositions::kAll) {
    return {features, states, steps.repeat({2}), {.context = length, .queries = length}};
  }
  return {features.narrow(1, 0, length - 1), states.narrow(1, length - 1, 1), steps, {.context = length}};
}

}  // namespace adtrain
