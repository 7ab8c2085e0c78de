#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "collection/Adam.h"
#include "collection/CollectionOptions.h"
#include "collection/Mlp.h"

namespace adtrain {

/// What PPO stores of a rollout, by sample.
struct RolloutSamples {
  std::vector<int32_t> states;  ///< x · grid_size + y
  std::vector<int32_t> actions;
  std::vector<float> probabilities;  ///< of the action, by the policy that took it
  std::vector<float> advantages;
  std::vector<float> targets;  ///< for the value

  void resize(size_t samples);
};

/// PPO's policy and value networks with their optimizer.
///
/// Both depend on the state alone, of which a grid has few: a minibatch is evaluated on its *distinct*
/// states, and the samples' derivatives are summed by state before the backward pass. The mathematics is that
/// of Stable-Baselines3.
class ActorCritic {
 public:
  ActorCritic(const PpoSettings& settings, int64_t grid_size, RandomStream& random);

  /// The policy's probabilities and the value of each state, given as x · grid_size + y.
  void evaluate(std::span<const int32_t> states);
  const std::array<float, kActions>& probabilities(size_t i) const { return probabilities_[i]; }
  float value(size_t i) const { return value_.outputs(i)[0]; }

  /// One step of the optimizer on a minibatch: `minibatch` are indices of samples.
  void update(const RolloutSamples& samples, std::span<const int32_t> minibatch);

  Mlp<kActions>& policy_network() { return policy_; }
  Mlp<1>& value_network() { return value_; }

 private:
  void find_distinct(const RolloutSamples& samples, std::span<const int32_t> minibatch);
  void differentiate(const RolloutSamples& samples, std::span<const int32_t> minibatch);
  void step();

  PpoSettings settings_;
  int32_t grid_size_;
  Mlp<kActions> policy_;
  Mlp<1> value_;
  Adam policy_adam_, value_adam_;

  std::vector<Cell> cells_;
  std::vector<std::array<float, kActions>> probabilities_;
  // Of a minibatch: its distinct states, each state's index among them, and the loss's derivatives by state.
  std::vector<int32_t> distinct_, slot_of_state_, slots_;
  std::vector<std::array<float, kActions>> by_log_probability_;
  std::vector<float> by_logit_, by_value_;
};

}  // namespace adtrain
