#include "collection/ActorCritic.h"

#include <cmath>
#include <numbers>
#include <numeric>
#include <vector>

#include <gtest/gtest.h>

#include "collection/PlainActorCritic.h"
#include "support/FreshSeed.h"

namespace adtrain {
namespace {

PpoSettings settings_of(double entropy_coefficient) {
  CollectionOptions options;
  options.ent_coef = entropy_coefficient;
  options.source_lr = 1e-3;
  return options.ppo(Family::kDarkroom);
}

/// Samples of few and of many states, some of whose ratios are beyond the clipping range.
RolloutSamples random_samples(size_t count, uint32_t states, RandomStream& random) {
  RolloutSamples samples;
  samples.resize(count);
  for (size_t i = 0; i < count; ++i) {
    samples.states[i] = static_cast<int32_t>(random.below(states));
    samples.actions[i] = static_cast<int32_t>(random.below(kActions));
    samples.probabilities[i] = 0.1F + 0.25F * random.uniform();
    samples.advantages[i] = static_cast<float>(random.normal());
    samples.targets[i] = 3 * random.uniform();
  }
  return samples;
}

/// The largest difference of two arrays, relative to the largest number in them, or to 0.01 where all are
/// smaller.
double difference(std::span<const float> fast, const std::vector<double>& plain) {
  double largest = 0.01, worst = 0;
  for (size_t i = 0; i < plain.size(); ++i) {
    largest = std::max(largest, std::abs(plain[i]));
    worst = std::max(worst, std::abs(fast[i] - plain[i]));
  }
  return worst / largest;
}

TEST(ActorCritic, UpdatesAsThePlainSampleBySampleFormDoes) {
  RandomStream random(fresh_seed());
  for (const double entropy_coefficient : {0.0, 0.02}) {
    for (const uint32_t states : {1U, 3U, 81U}) {
      const PpoSettings settings = settings_of(entropy_coefficient);
      ActorCritic fast(settings, 9, random);
      PlainActorCritic plain(settings, 9, fast);
      const RolloutSamples samples = random_samples(120, states, random);
      std::vector<int32_t> order(120);
      std::iota(order.begin(), order.end(), 0);
      size_t begin = 0;
      for (const size_t size : {50, 2, 1, 17, 50}) {  // a lone sample's advantage is not normalised
        const auto minibatch = std::span(order).subspan(begin, size);
        fast.update(samples, minibatch);
        plain.update(samples, minibatch);
        EXPECT_LT(difference(fast.policy_network().gradient, plain.policy.gradient), 2e-3)
            << size << " of " << states;
        EXPECT_LT(difference(fast.value_network().gradient, plain.value.gradient), 2e-3)
            << size << " of " << states;
        EXPECT_LT(difference(fast.policy_network().weights, plain.policy.weights), 5e-5)
            << size << " of " << states;
        EXPECT_LT(difference(fast.value_network().weights, plain.value.weights), 5e-5)
            << size << " of " << states;
        begin += size;
      }
    }
  }
}

TEST(ActorCritic, EvaluatesToTheNetworksOutputs) {
  RandomStream random(fresh_seed());
  ActorCritic fast(settings_of(0), 9, random);
  for (float& weight : fast.policy_network().weights) weight += 0.1F * static_cast<float>(random.normal());
  PlainActorCritic plain(settings_of(0), 9, fast);
  std::vector<int32_t> states(81);
  std::iota(states.begin(), states.end(), 0);
  fast.evaluate(states);
  for (size_t state = 0; state < 81; ++state) {
    const Cell cell{static_cast<int32_t>(state / 9), static_cast<int32_t>(state % 9)};
    EXPECT_NEAR(fast.value(state), plain.value.forward(cell)[0], 1e-5);
    const auto logits = plain.policy.forward(cell);
    double total = 0;
    for (const double logit : logits) total += std::exp(logit);
    for (size_t action = 0; action < kActions; ++action) {
      EXPECT_NEAR(fast.probabilities(state)[action], std::exp(logits[action]) / total, 1e-5);
    }
  }
}

TEST(ActorCritic, StartsOrthogonalWithStableBaselines3sGains) {
  RandomStream random(7);
  ActorCritic networks(settings_of(0), 9, random);
  const auto check = [](const auto& rows, double gain) {
    for (size_t i = 0; i < std::size(rows); ++i) {
      for (size_t j = 0; j <= i; ++j) {
        const double product =
            std::inner_product(std::begin(rows[i]), std::end(rows[i]), std::begin(rows[j]), 0.0);
        EXPECT_NEAR(product, i == j ? gain * gain : 0.0, 1e-5);
      }
    }
  };
  check(networks.policy_network().weights.input, std::numbers::sqrt2);
  check(networks.policy_network().weights.hidden, std::numbers::sqrt2);
  check(networks.policy_network().weights.output, 0.01);
  check(networks.value_network().weights.hidden, std::numbers::sqrt2);
  check(networks.value_network().weights.output, 1);
  for (const float bias : networks.value_network().weights.hidden_bias) EXPECT_EQ(bias, 0);
}

}  // namespace
}  // namespace adtrain
