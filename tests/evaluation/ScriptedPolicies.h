#pragma once

#include <cstdint>
#include <vector>

#include <ATen/ATen.h>

#include "base/Random.h"
#include "evaluation/Predictor.h"
#include "evaluation/TransitionRows.h"

namespace adtrain {

/// One transition as a model is shown it.
struct SeenTransition {
  int32_t state[2];
  int32_t action;
  float reward;
  int32_t next_state[2];

  bool operator==(const SeenTransition&) const = default;
};

inline SeenTransition seen(const Batch& batch, int64_t row, int64_t column) {
  const auto states = batch.states.accessor<int32_t, 3>();
  const auto next_states = batch.next_states.accessor<int32_t, 3>();
  return {{states[row][column][0], states[row][column][1]},
          batch.actions.accessor<int32_t, 2>()[row][column],
          batch.rewards.accessor<float, 2>()[row][column],
          {next_states[row][column][0], next_states[row][column][1]}};
}

/// A policy without parameters whose logits are a fixed, wild function of all that is in a row, and of
/// nothing else. With compressed context it also ends regions, about one query in eight.
inline AlgorithmDistillation::Predictions hash_policy(const Batch& batch) {
  AlgorithmDistillation::Predictions predictions;
  predictions.actions = at::empty({batch.size(), 5});
  predictions.token_types = at::zeros({batch.size(), 3});
  for (int64_t row = 0; row < batch.size(); ++row) {
    uint64_t hash = 1;
    for (int64_t column = 0; column < batch.states.size(1); ++column) {
      const SeenTransition t = seen(batch, row, column);
      hash = seed_of(hash, t.state[0], t.state[1], t.action, t.reward, t.next_state[0], t.next_state[1]);
    }
    if (batch.compressed())
      hash = seed_of(hash, batch.query_state[row][0].item<int>(), batch.query_state[row][1].item<int>());
    RandomStream stream(hash);
    for (int64_t action = 0; action < 5; ++action) predictions.actions[row][action] = 2 * stream.normal();
    predictions.token_types[row][stream.below(8) == 0 ? TokenType::kEndCompress : TokenType::kTransition] = 1;
  }
  return predictions;
}

/// n rows of one step's worth of small random numbers.
struct RandomStep {
  RandomStep(RandomStream& stream, int64_t rows) {
    for (int64_t i = 0; i < rows; ++i) {
      for (int axis = 0; axis < 2; ++axis) {
        states.push_back(static_cast<int32_t>(stream.below(9)));
        next_states.push_back(static_cast<int32_t>(stream.below(9)));
      }
      actions.push_back(static_cast<int32_t>(stream.below(5)));
      rewards.push_back(static_cast<float>(stream.below(2)));
    }
  }

  StepOfRows view() const { return {states, actions, rewards, next_states}; }
  SeenTransition of_row(size_t row) const {
    return {{states[2 * row], states[2 * row + 1]},
            actions[row],
            rewards[row],
            {next_states[2 * row], next_states[2 * row + 1]}};
  }

  std::vector<int32_t> states, actions, next_states;
  std::vector<float> rewards;
};

}  // namespace adtrain
