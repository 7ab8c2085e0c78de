#include "evaluation/Predictor.h"

#include <algorithm>
#include <memory>
#include <vector>

#include <ATen/ATen.h>

#include "evaluation/CapturedRolling.h"

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

Predictor predictor_of(PlacedNetwork& network, int64_t micro_batches) {
  return [&network, micro_batches](const Batch& batch) {
    const int64_t rows = batch.size(), parts = std::min(micro_batches, rows);
    std::vector<PendingPredictions> pending;
    for (int64_t part = 0; part < parts; ++part) {
      const int64_t first = rows * part / parts, end = rows * (part + 1) / parts;
      pending.push_back(network.submit(batch.rows(first, end - first)));
    }
    if (parts == 1) return pending.front().get();
    std::vector<at::Tensor> actions, token_types;
    for (PendingPredictions& part : pending) {
      const AlgorithmDistillation::Predictions found = part.get();
      actions.push_back(found.actions);
      if (found.token_types.defined()) token_types.push_back(found.token_types);
    }
    return AlgorithmDistillation::Predictions{at::cat(actions),
                                              token_types.empty() ? at::Tensor() : at::cat(token_types)};
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

RollingPredictors RollingPredictors::of_group(int64_t group) const {
  if (!begin) return *this;
  return {[begin = begin, group] { return adtrain::of_group(begin(), group); }, slides};
}

RollingPredictors rolling_predictors_of(AlgorithmDistillation& model, EvaluationContext context,
                                        bool captures) {
  const bool on_gpu = model.parameters().flat().is_cuda();
  if (!model.why_not_rolling().empty() || (context == EvaluationContext::kRecompute && !on_gpu)) return {};
  const auto begin = [&model, captures, on_gpu]() -> Predictor {
    const at::Device device = model.parameters().flat().device();
    if (captures && on_gpu && model.rolling_repeats()) {
      auto captured = std::make_shared<CapturedRolling>(model.rolling(), device);
      return [captured](const Batch& step) { return (*captured)(step); };
    }
    return
        [device, rolling = model.rolling()](const Batch& step) { return on_cpu(rolling(step.to(device))); };
  };
  return {begin, context == EvaluationContext::kRolling && model.rolling_slides()};
}

RollingPredictors rolling_predictors_of(PlacedNetwork& network, const AlgorithmDistillation& model) {
  if (!model.why_not_rolling().empty()) return {};
  const auto begin = [&network]() -> Predictor {
    return [rolling = network.rolling()](const Batch& step) { return rolling(step).get(); };
  };
  return {begin, model.rolling_slides()};
}

}  // namespace adtrain
