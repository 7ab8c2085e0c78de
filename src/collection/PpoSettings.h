#pragma once

#include <cstdint>

namespace adtrain {

/// PPO's complete settings.
struct PpoSettings {
  int64_t streams;
  int64_t rollout_steps;  ///< of each stream between two rounds of updates
  int64_t batch_size;     ///< samples of a minibatch
  int64_t epochs;         ///< passes over a rollout
  int64_t total_steps;    ///< of all streams together, rounded up to whole rollouts
  double learning_rate;
  double discount;
  double gae_lambda;
  double clip_range;
  double entropy_coefficient;
  double value_coefficient;
  double max_grad_norm;

  constexpr int64_t rollouts() const {
    return (total_steps + streams * rollout_steps - 1) / (streams * rollout_steps);
  }
  /// Length of each stream's history.
  constexpr int64_t history_steps() const { return rollouts() * rollout_steps; }
};

}  // namespace adtrain
