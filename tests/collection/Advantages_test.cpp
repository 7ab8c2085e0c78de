#include "collection/Advantages.h"

#include <vector>

#include <gtest/gtest.h>

#include "base/Random.h"
#include "support/FreshSeed.h"

namespace adtrain {
namespace {

TEST(Advantages, AreTheDiscountedSumsOfTheirDefinition) {
  RandomStream random(fresh_seed());
  constexpr size_t kSteps = 23, kStreams = 5;
  constexpr double kDiscount = 0.97, kLambda = 0.9;
  std::vector<float> rewards, values, last_values;
  std::vector<uint8_t> dones;
  for (size_t i = 0; i < kSteps * kStreams; ++i) {
    rewards.push_back(random.uniform());
    values.push_back(random.uniform());
    dones.push_back(random.below(6) == 0);
  }
  for (size_t i = 0; i < kStreams; ++i) last_values.push_back(random.uniform());
  std::vector<float> advantages(rewards.size()), targets(rewards.size());
  estimate_advantages(rewards, values, dones, last_values, kDiscount, kLambda, advantages, targets);

  for (size_t step = 0; step < kSteps; ++step) {
    for (size_t stream = 0; stream < kStreams; ++stream) {
      double expected = 0, weight = 1;
      for (size_t later = step; later < kSteps; ++later) {
        const size_t at = later * kStreams + stream;
        const double next = later + 1 < kSteps ? values[at + kStreams] : last_values[stream];
        expected += weight * (rewards[at] + (dones[at] ? 0 : kDiscount * next) - values[at]);
        if (dones[at]) break;
        weight *= kDiscount * kLambda;
      }
      EXPECT_NEAR(advantages[step * kStreams + stream], expected, 1e-5);
      EXPECT_NEAR(targets[step * kStreams + stream], expected + values[step * kStreams + stream], 1e-5);
    }
  }
}

}  // namespace
}  // namespace adtrain
