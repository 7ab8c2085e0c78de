#include "evaluation/Predictor.h"

#include <ATen/ATen.h>

namespace adtrain {
namespace {

Batch moved(Batch batch, at::Device device) {
  for (at::Tensor* part : {&batch.states, &batch.actions, &batch.rewards, &batch.next_states, &batch.previous,
                           &batch.current, &batch.query_state, &batch.query_action}) {
    if (part->defined()) *part = part->to(device);
  }
  return batch;
}

}  // namespace

Predictor predictor_of(AlgorithmDistillation& model) {
  return [&model](const Batch& batch) {
    AlgorithmDistillation::Predictions predictions =
        model.predict(moved(batch, model.parameters().flat().device()));
    predictions.actions = predictions.actions.to(at::kCPU, at::kFloat);
    if (predictions.token_types.defined()) {
      predictions.token_types = predictions.token_types.to(at::kCPU, at::kFloat);
    }
    return predictions;
  };
}

}  // namespace adtrain
