#include "evaluation/Predictor.h"

#include <ATen/ATen.h>

namespace adtrain {
Predictor predictor_of(AlgorithmDistillation& model) {
  return [&model](const Batch& batch) {
    AlgorithmDistillation::Predictions predictions =
        model.predict(batch.to(model.parameters().flat().device()));
    predictions.actions = predictions.actions.to(at::kCPU, at::kFloat);
    if (predictions.token_types.defined()) {
      predictions.token_types = predictions.token_types.to(at::kCPU, at::kFloat);
    }
    return predictions;
  };
}

}  // namespace adtrain
