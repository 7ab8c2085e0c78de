#pragma once

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdint>
#include <span>
#include <vector>

#include "collection/ActorCritic.h"

namespace adtrain {

/// The network and its gradients as a textbook has them: in double precision, one sample at a time.
template <int kOutputs>
class PlainMlp {
 public:
  using Vector = std::vector<double>;

  explicit PlainMlp(MlpWeights<kOutputs> start)
      : weights(start.begin(), start.end()),
        gradient(weights.size()),
        mean_(weights.size()),
        square_(weights.size()) {}

  std::array<double, kOutputs> forward(Cell cell) {
    input_ = {static_cast<double>(cell.x), static_cast<double>(cell.y)};
    first_ = layer(input_, kInput, kInputBias);
    second_ = layer(first_, kHidden, kHiddenBias);
    std::array<double, kOutputs> outputs;
    for (size_t o = 0; o < kOutputs; ++o) {
      outputs[o] = weights[kOutputBias + o];
      for (size_t u = 0; u < kUnits; ++u) outputs[o] += weights[kOutput + o * kUnits + u] * second_[u];
    }
    return outputs;
  }

  /// Adds the gradients of the sample that `forward` saw last.
  void backward(const std::array<double, kOutputs>& by_output) {
    Vector second_delta(kUnits), first_delta(kUnits);
    for (size_t o = 0; o < kOutputs; ++o) {
      gradient[kOutputBias + o] += by_output[o];
      for (size_t u = 0; u < kUnits; ++u) {
        gradient[kOutput + o * kUnits + u] += by_output[o] * second_[u];
        second_delta[u] += by_output[o] * weights[kOutput + o * kUnits + u] * (1 - second_[u] * second_[u]);
      }
    }
    for (size_t u = 0; u < kUnits; ++u) {
      gradient[kHiddenBias + u] += second_delta[u];
      for (size_t k = 0; k < kUnits; ++k) {
        gradient[kHidden + k * kUnits + u] += first_[k] * second_delta[u];
        first_delta[k] += weights[kHidden + k * kUnits + u] * second_delta[u] * (1 - first_[k] * first_[k]);
      }
    }
    for (size_t u = 0; u < kUnits; ++u) {
      gradient[kInputBias + u] += first_delta[u];
      for (size_t k = 0; k < 2; ++k) gradient[kInput + k * kUnits + u] += input_[k] * first_delta[u];
    }
  }

  void adam(double rate, double scale, int64_t step) {
    for (size_t i = 0; i < weights.size(); ++i) {
      const double g = gradient[i] * scale;
      mean_[i] = 0.9 * mean_[i] + 0.1 * g;
      square_[i] = 0.999 * square_[i] + 0.001 * g * g;
      const double corrected = mean_[i] / (1 - std::pow(0.9, step));
      weights[i] -= rate * corrected / (std::sqrt(square_[i] / (1 - std::pow(0.999, step))) + 1e-5);
    }
  }

  Vector weights, gradient;

 private:
  static constexpr size_t kInput = 0, kInputBias = 2 * kUnits, kHidden = 3 * kUnits,
                          kHiddenBias = kHidden + kUnits * kUnits, kOutput = kHiddenBias + kUnits,
                          kOutputBias = kOutput + kOutputs * kUnits;

  Vector layer(const Vector& in, size_t matrix, size_t bias) const {
    Vector out(kUnits);
    for (size_t u = 0; u < kUnits; ++u) {
      double total = weights[bias + u];
      for (size_t k = 0; k < in.size(); ++k) total += in[k] * weights[matrix + k * kUnits + u];
      out[u] = std::tanh(total);
    }
    return out;
  }

  Vector mean_, square_;
  Vector input_, first_, second_;
};

/// One update of PPO on a minibatch, sample by sample: the definition that ActorCritic is tested against.
class PlainActorCritic {
 public:
  PlainActorCritic(const PpoSettings& settings, int32_t grid_size, ActorCritic& start)
      : policy(start.policy_network().weights),
        value(start.value_network().weights),
        settings_(settings),
        grid_size_(grid_size) {}

  void update(const RolloutSamples& samples, std::span<const int32_t> minibatch) {
    const auto count = static_cast<double>(minibatch.size());
    double mean = 0, deviation = 0;
    for (const int32_t i : minibatch) mean += samples.advantages[static_cast<size_t>(i)] / count;
    for (const int32_t i : minibatch)
      deviation += std::pow(samples.advantages[static_cast<size_t>(i)] - mean, 2);
    deviation = std::sqrt(deviation / (count - 1));

    std::fill(policy.gradient.begin(), policy.gradient.end(), 0.0);
    std::fill(value.gradient.begin(), value.gradient.end(), 0.0);
    for (const int32_t index : minibatch) {
      const auto i = static_cast<size_t>(index);
      const Cell cell{samples.states[i] / grid_size_, samples.states[i] % grid_size_};
      const double advantage = count > 1 ? (samples.advantages[i] - mean) / (deviation + 1e-8)
                                         : static_cast<double>(samples.advantages[i]);
      policy.backward(policy_gradient(policy.forward(cell), samples, i, advantage, count));
      const double error = value.forward(cell)[0] - samples.targets[i];
      value.backward({settings_.value_coefficient * 2 * error / count});
    }

    double squares = 0;
    for (const double g : policy.gradient) squares += g * g;
    for (const double g : value.gradient) squares += g * g;
    const double scale = std::min(1.0, settings_.max_grad_norm / (std::sqrt(squares) + 1e-6));
    ++step_;
    policy.adam(settings_.learning_rate, scale, step_);
    value.adam(settings_.learning_rate, scale, step_);
  }

  PlainMlp<kActions> policy;
  PlainMlp<1> value;

 private:
  std::array<double, kActions> policy_gradient(const std::array<double, kActions>& logits,
                                               const RolloutSamples& samples, size_t i, double advantage,
                                               double count) const {
    double total = 0, entropy = 0;
    for (const double logit : logits) total += std::exp(logit);
    std::array<double, kActions> log_probability;
    for (size_t a = 0; a < kActions; ++a) log_probability[a] = logits[a] - std::log(total);
    for (const double log_p : log_probability) entropy -= std::exp(log_p) * log_p;

    const auto action = static_cast<size_t>(samples.actions[i]);
    const double ratio =
        std::exp(log_probability[action] - std::log(static_cast<double>(samples.probabilities[i])));
    const double limited = std::clamp(ratio, 1 - settings_.clip_range, 1 + settings_.clip_range);
    const bool follows = advantage * ratio <= advantage * limited;  // else the clipped branch, which is flat
    std::array<double, kActions> gradient;
    for (size_t a = 0; a < kActions; ++a) {
      const double p = std::exp(log_probability[a]);
      const double by_logit = (a == action ? 1.0 : 0.0) - p;
      gradient[a] = (follows ? -advantage * ratio * by_logit : 0.0) / count;
      gradient[a] += settings_.entropy_coefficient * p * (log_probability[a] + entropy) / count;
    }
    return gradient;
  }

  PpoSettings settings_;
  int32_t grid_size_;
  int64_t step_ = 0;
};

}  // namespace adtrain
