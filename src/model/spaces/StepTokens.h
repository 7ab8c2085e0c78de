#pragma once

#include <cstdint>
#include <memory>
#include <vector>

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
/// episode's first step. Otherwise these are those of the step before, whatever ended there.
///
/// Of several groups of spaces each has encoders of observations and actions and learned first steps of its
/// own; the other layers are shared. Not thread-safe.
class StepTokens {
 public:
  static constexpr int64_t kFeatures = 64;
  /// Of an action and of an observation.
  static int64_t features_of(const ModelOptions& options);

  /// `options` are of_own_tasks; `spaces` are those of each group.
  StepTokens(ParameterFactory& factory, const ModelOptions& options, const std::vector<TaskSpaces>& spaces,
             const Initialisation& initial);

  /// (B, T, width); of a batch of several parts, these in order. The last action and reward of a row are not
  /// read.
  at::Tensor operator()(const Batch& batch, const ObservationEncoder::Run& run) const;

 private:
  /// What reads the rows of one group.
  struct Group {
    std::unique_ptr<ObservationEncoder> observation;
    ActionEncoder action;
    at::Tensor first_action, first_reward;  ///< (features) each; undefined where zeros stand for them
  };
  at::Tensor of_group(const Batch& batch, const ObservationEncoder::Run& run) const;

  std::vector<Group> groups_;
  Linear embed_reward_;  ///< vintix only
  Linear embed_token_;   ///< not for vintix
};

}  // namespace adtrain
