#pragma once

#include <map>
#include <set>
#include <string>

#include "collectives/SingleCommunicator.h"
#include "model/AlgorithmDistillation.h"
#include "parallel/GradientReducer.h"

/// What networks that are frozen in part are compared by.
namespace adtrain::testing {

/// By name: the gradients that a reducer has of a batch, with these parameters frozen.
inline std::map<std::string, at::Tensor> gradients_of(AlgorithmDistillation& model, const Batch& batch,
                                                      LossPositions positions,
                                                      const std::set<std::string>& frozen) {
  model.parameters().freeze(frozen);
  SingleCommunicator alone(model.parameters().flat().device());
  GradientReducer reducer(model.parameters().trained_leaves(), alone, {});
  model.send_gradients_to(&reducer);
  reducer.begin_micro_step(true);
  model.loss(batch, positions, /*training=*/true).sum.backward();
  reducer.finish();
  model.send_gradients_to(nullptr);
  std::map<std::string, at::Tensor> gradients;
  for (const auto& [name, view] : model.parameters().trained_views_of(reducer.flat_gradient()))
    gradients[name] = view.clone();
  return gradients;
}

/// The first block and every third of the other parameters.
inline std::set<std::string> some_of(const ParameterBuffer& parameters) {
  std::set<std::string> some;
  for (size_t number = 0; const auto& [name, tensor] : parameters.named()) {
    if (name.find("s.0.") != std::string::npos || number++ % 3 == 1) some.insert(name);
  }
  return some;
}

}  // namespace adtrain::testing
