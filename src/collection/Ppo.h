#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <vector>

#include "base/Random.h"
#include "collection/ActorCritic.h"
#include "collection/CollectionOptions.h"
#include "data/History.h"
#include "environments/EnvironmentBatch.h"

namespace adtrain {

/// Proximal policy optimisation (Schulman et al. 2017) of one task, as Stable-Baselines3 runs it: one policy
/// for all streams, with alternating rollouts and rounds of updates. Its experience is the task's learning
/// history. A function of its arguments alone. For one thread.
class Ppo {
 public:
  Ppo(const TaskFamily& family, int64_t task, const PpoSettings& settings, uint64_t seed);

  /// Learns the task completely. Returns nothing where `stop`, called before every rollout, returned true. At
  /// an episode's end next_states hold the reset state, or the last observation if `terminal_next_states`.
  /// Throws NonFiniteError where the networks diverge.
  std::optional<History> learn(bool terminal_next_states, const std::function<bool()>& stop = {});

 private:
  void collect_rollout(bool terminal_next_states, History& history);
  void act(size_t offset);
  void know_states();
  void update();

  int64_t task_;
  PpoSettings settings_;
  int32_t grid_size_;
  EnvironmentBatch environments_;
  RandomStream random_;
  ActorCritic networks_;

  /// The networks' outputs for a state, computed once per rollout for each state that occurs.
  struct Opinion {
    int64_t rollout = -1;  ///< for which it is valid
    std::array<float, kActions> probabilities;
    float value;
  };
  std::vector<Opinion> opinions_;
  int64_t rollout_ = 0;

  RolloutSamples samples_;
  std::vector<float> rewards_, values_;
  std::vector<uint8_t> dones_;
  std::vector<int32_t> states_, actions_;  ///< of all streams at present
  std::vector<int32_t> order_;             ///< of the samples in an epoch
};

/// The seed of one of the policies that learn a task, from 0.
uint64_t seed_of_policy(const CollectionOptions& options, const TaskFamily& family, int64_t task,
                        int64_t policy);

/// Marks rollouts in a history: 1 on the first and 2 on the last step of each.
void mark_rollouts(History& history, int64_t rollout_steps);

}  // namespace adtrain
