#include "evaluation/Predictor.h"

#include <ATen/ATen.h>

namespace adtrain {
namespace {

AlgorithmDistillation::Predictions on_cpu(AlgorithmDistillation::Predictions predictions) {
  predictions.actions = predictions.actions.to(at::kCPU, at::kFloat);
  if (predictions.token_types.defined()) {
    predictions.token_types = predictions.token_types.to(at::kCPU, at::kFloat);
  }
  return predictions;
}

}  // namespace

Predictor predictor_of(AlgorithmDistillation& model) {
  return [&model](const Batch& batch) {
    return on_cpu(model.predict(batch.to(model.parameters().flat().device())));
  };
}

Predictor of_group(const Predictor& predict, int64_t group) {
  if (!predict) return predict;
  return [=](const Batch& rows) {
    Batch of_group = rows;
    of_group.group = group;
    return predict(of_group);
  };
}

std::function<Predictor()> rolling_predictors_of(AlgorithmDistillation& model) {
  return [&model]() -> Predictor {
    return [&model, rolling = model.rolling()](const Batch& step) {
      return on_cpu(rolling(step.to(model.parameters().flat().device())));
    };
  };
}

}  // namespace adtrain
