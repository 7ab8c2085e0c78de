#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include <ATen/ATen.h>

#include "base/Random.h"
#include "collection/Adam.h"
#include "collection/PpoSettings.h"
#include "collection/own/ActionDistribution.h"

namespace adtrain {

/// What PPO stores of a rollout in an environment of any space, by sample; all are float32 of the CPU.
struct OwnSamples {
  at::Tensor features;           ///< (n, features)
  at::Tensor actions;            ///< (n, action's size)
  at::Tensor log_probabilities;  ///< (n): of the action, by the policy that took it
  at::Tensor advantages;         ///< (n)
  at::Tensor targets;            ///< (n): for the value
};

/// PPO's policy and value networks for features of any size, with their optimizer: two tanh layers each,
/// as Stable-Baselines3's MlpPolicy. ActorCritic is the same for grids, of which it evaluates each distinct
/// state once; here no two observations are equal, so libtorch multiplies the matrices and differentiates.
/// All parameters lie in one array, which `Adam` steps. A function of its arguments and calls alone. For one
/// thread.
class PolicyAndValue {
 public:
  /// `units` of each hidden layer. The distribution must outlive it.
  PolicyAndValue(const PpoSettings& settings, int64_t features, int64_t units,
                 const ActionDistribution& distribution, RandomStream& random);

  /// Policy's numbers (n, policy_numbers()) and values (n) of features (n, features).
  struct Outputs {
    at::Tensor policy, values;
  };
  Outputs evaluate(const at::Tensor& features) const;
  const at::Tensor& log_deviations() const { return log_deviations_; }

  /// The loss of a minibatch, samples' indices (m) int64: the mean of −min(A·ratio, A·clip(ratio)) +
  /// value_coefficient · (value − target)² − entropy_coefficient · entropy, A normalised within it.
  at::Tensor loss(const OwnSamples& samples, const at::Tensor& minibatch) const;
  /// One step of the optimizer.
  void update(const OwnSamples& samples, const at::Tensor& minibatch);

  /// All parameters, and their gradients after `update`: of the policy's layers, weights (out, in) before
  /// biases, then the log-deviations, then the value's layers; zeros behind them.
  std::span<float> parameters() { return parameters_; }
  std::span<const float> gradient() const { return gradient_; }

 private:
  static constexpr size_t kLayers = 3;
  struct Layer {
    at::Tensor weight, bias;
  };
  using Network = std::array<Layer, kLayers>;

  at::Tensor take(const std::vector<int64_t>& shape);
  Network take_network(int64_t features, int64_t units, int64_t outputs, double output_gain,
                       RandomStream& random);
  static at::Tensor forward(const Network& network, at::Tensor features);

  PpoSettings settings_;
  const ActionDistribution& distribution_;
  std::vector<float> parameters_, gradient_;
  size_t taken_ = 0;
  Network policy_, value_;
  at::Tensor log_deviations_;
  Adam adam_;
};

}  // namespace adtrain
