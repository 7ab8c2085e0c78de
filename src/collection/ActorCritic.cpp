#include "collection/ActorCritic.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>

namespace adtrain {
namespace {

struct Normalisation {
  float mean = 0;
  float scale = 1;
};

/// Normalises advantages to mean 0 and (unbiased) standard deviation 1 within each minibatch; a single one is
/// left unchanged.
Normalisation normalisation_of(const std::vector<float>& advantages, std::span<const int32_t> minibatch) {
  if (minibatch.size() < 2) return {};
  const auto count = static_cast<float>(minibatch.size());
  float total = 0, squares = 0;
  for (const int32_t sample : minibatch) total += advantages[static_cast<size_t>(sample)];
  const float mean = total / count;
  for (const int32_t sample : minibatch) {
    const float deviation = advantages[static_cast<size_t>(sample)] - mean;
    squares += deviation * deviation;
  }
  return {mean, 1 / (std::sqrt(squares / (count - 1)) + 1e-8F)};
}

/// Keeps ratios and logarithms finite.
constexpr float kLeastProbability = std::numeric_limits<float>::min();

std::array<float, kActions> softmax(std::span<const float, kActions> logits) {
  const float largest = *std::max_element(logits.begin(), logits.end());
  std::array<float, kActions> exponentials;
  for (size_t action = 0; action < kActions; ++action)
    exponentials[action] = std::exp(logits[action] - largest);
  const float total = std::accumulate(exponentials.begin(), exponentials.end(), 0.0F);
  for (float& exponential : exponentials) exponential = std::max(exponential / total, kLeastProbability);
  return exponentials;
}

}  // namespace

void RolloutSamples::resize(size_t samples) {
  states.resize(samples);
  actions.resize(samples);
  probabilities.resize(samples);
  advantages.resize(samples);
  targets.resize(samples);
}

ActorCritic::ActorCritic(const PpoSettings& settings, int64_t grid_size, RandomStream& random)
    : settings_(settings),
      grid_size_(static_cast<int32_t>(grid_size)),
      policy_adam_(policy_.weights.size(), settings.learning_rate),
      value_adam_(value_.weights.size(), settings.learning_rate),
      slot_of_state_(static_cast<size_t>(grid_size * grid_size), -1) {
  policy_.initialise(random, 0.01);
  value_.initialise(random, 1);
}

void ActorCritic::evaluate(std::span<const int32_t> states) {
  cells_.clear();
  for (const int32_t state : states) cells_.push_back({state / grid_size_, state % grid_size_});
  policy_.forward(cells_);
  value_.forward(cells_);
  probabilities_.resize(std::max(probabilities_.size(), states.size()));
  for (size_t i = 0; i < states.size(); ++i) probabilities_[i] = softmax(policy_.outputs(i));
}

void ActorCritic::update(const RolloutSamples& samples, std::span<const int32_t> minibatch) {
  find_distinct(samples, minibatch);
  evaluate(distinct_);
  differentiate(samples, minibatch);
  policy_.backward(cells_, by_logit_);
  value_.backward(cells_, by_value_);
  step();
}

void ActorCritic::find_distinct(const RolloutSamples& samples, std::span<const int32_t> minibatch) {
  distinct_.clear();
  slots_.clear();
  for (const int32_t sample : minibatch) {
    const int32_t state = samples.states[static_cast<size_t>(sample)];
    int32_t& slot = slot_of_state_[static_cast<size_t>(state)];
    if (slot < 0) {
      slot = static_cast<int32_t>(distinct_.size());
      distinct_.push_back(state);
    }
    slots_.push_back(slot);
  }
  for (const int32_t state : distinct_) slot_of_state_[static_cast<size_t>(state)] = -1;
}

/// The loss is the minibatch's mean of −min(A·ratio, A·clip(ratio)) + value_coefficient · (value − target)²
/// − entropy_coefficient · entropy.
void ActorCritic::differentiate(const RolloutSamples& samples, std::span<const int32_t> minibatch) {
  const auto share = 1 / static_cast<float>(minibatch.size());
  const auto lowest = static_cast<float>(1 - settings_.clip_range);
  const auto highest = static_cast<float>(1 + settings_.clip_range);
  const auto value_factor = static_cast<float>(2 * settings_.value_coefficient) * share;
  const auto entropy_factor = static_cast<float>(settings_.entropy_coefficient) * share;
  const Normalisation normalisation = normalisation_of(samples.advantages, minibatch);

  by_log_probability_.assign(distinct_.size(), {});
  by_value_.assign(distinct_.size(), 0);
  by_logit_.assign(distinct_.size() * kActions, 0);
  for (size_t i = 0; i < minibatch.size(); ++i) {
    const auto sample = static_cast<size_t>(minibatch[i]);
    const auto slot = static_cast<size_t>(slots_[i]);
    const auto action = static_cast<size_t>(samples.actions[sample]);
    const float advantage = (samples.advantages[sample] - normalisation.mean) * normalisation.scale;
    const float ratio = probabilities_[slot][action] / samples.probabilities[sample];
    const bool clipped = advantage > 0 ? ratio > highest : ratio < lowest;
    if (!clipped) by_log_probability_[slot][action] -= share * advantage * ratio;
    by_value_[slot] += value_factor * (value(slot) - samples.targets[sample]);
  }
  if (entropy_factor > 0) {
    // d(−entropy)/d log p(a), as if the log-probabilities were free: p · (log p + 1); the softmax below does
    // the rest.
    for (const int32_t slot : slots_) {
      const std::array<float, kActions>& probability = probabilities_[static_cast<size_t>(slot)];
      for (size_t action = 0; action < kActions; ++action) {
        by_log_probability_[static_cast<size_t>(slot)][action] +=
            entropy_factor * probability[action] * (std::log(probability[action]) + 1);
      }
    }
  }
  for (size_t slot = 0; slot < distinct_.size(); ++slot) {
    const std::array<float, kActions>& derivative = by_log_probability_[slot];
    const float total = std::accumulate(derivative.begin(), derivative.end(), 0.0F);
    for (size_t action = 0; action < kActions; ++action) {
      by_logit_[slot * kActions + action] = derivative[action] - probabilities_[slot][action] * total;
    }
  }
}

void ActorCritic::step() {
  const float norm = std::sqrt(sum_of_squares(policy_.gradient) + sum_of_squares(value_.gradient));
  const float scale = std::min(1.0F, static_cast<float>(settings_.max_grad_norm) / (norm + 1e-6F));
  policy_adam_.step(policy_.weights, policy_.gradient, scale);
  value_adam_.step(value_.weights, value_.gradient, scale);
}

}  // namespace adtrain
