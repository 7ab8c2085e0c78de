#pragma once

#include <cstdint>
#include <memory>

#include <ATen/core/Tensor.h>

#include "data/Batch.h"
#include "model/spaces/ActionEncoder.h"
#include "model/spaces/ObservationEncoder.h"

namespace adtrain {

/// Rows of any space as tokens of the previous action, the previous reward and the present observation.
///
/// With pre_norm and xland as in the baseline of XLand-100B (arXiv:2406.08973): Linear(concat(action, reward,
/// observation)) of kFeatures, 1 and kFeatures features, the reward as it is. With vintix as in Vintix
/// (arXiv:2501.19400): concat(observation, action, reward), two features of which are
/// LeakyReLU(Linear(reward)) and the others equal halves.
///
/// With a learned first step, parameters stand for the features of the previous action and reward at an
/// episode's first step. Otherwise these are those of the step before, whatever ended there. Not thread-safe.
class StepTokens {
 public:
  static constexpr int64_t kFeatures = 64;
  /// Of an action and of an observation.
  static int64_t features_of(const ModelOptions& options);

  /// `options` are of_own_tasks.
  StepTokens(ParameterFactory& factory, const ModelOptions& options, const TaskSpaces& spaces,
             const Initialisation& initial);

  /// (B, T, width). The last action and reward of a row are not read.
  at::Tensor operator()(const Batch& batch) const;

 private:
  std::unique_ptr<ObservationEncoder> observation_;
  ActionEncoder action_;
  Linear embed_reward_;                     ///< vintix only
  at::Tensor first_action_, first_reward_;  ///< (features) each; undefined where zeros stand for them
  Linear embed_token_;                      ///< not for vintix
};

}  // namespace adtrain
