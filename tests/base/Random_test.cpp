#include "base/Random.h"

#include <set>
#include <vector>

#include <gtest/gtest.h>

namespace adtrain {
namespace {

TEST(Random, AStreamResumesFromItsKeyAndCounter) {
  RandomStream stream(seed_of(7, 1, 2));
  for (int i = 0; i < 10; ++i) stream.next();
  RandomStream resumed(stream.key(), stream.counter());
  for (int i = 0; i < 10; ++i) EXPECT_EQ(stream.next(), resumed.next());
}

TEST(Random, SeedsOfDifferentPartsDiffer) {
  std::set<uint64_t> seeds;
  for (uint64_t a = 0; a < 30; ++a) {
    for (uint64_t b = 0; b < 30; ++b) seeds.insert(seed_of(1, a, b));
  }
  EXPECT_EQ(seeds.size(), 900U);
}

TEST(Random, BelowIsUniform) {
  RandomStream stream(3);
  std::vector<int> counts(5);
  for (int i = 0; i < 50000; ++i) ++counts[stream.below(5)];
  for (const int count : counts) EXPECT_NEAR(count, 10000, 500);
}

TEST(Random, UniformAndNormalHaveTheirMoments) {
  RandomStream stream(4);
  double sum = 0, normal_sum = 0, normal_squares = 0;
  constexpr int kCount = 100000;
  for (int i = 0; i < kCount; ++i) {
    const float u = stream.uniform();
    ASSERT_GE(u, 0.0F);
    ASSERT_LT(u, 1.0F);
    sum += u;
    const double z = stream.normal();
    normal_sum += z;
    normal_squares += z * z;
  }
  EXPECT_NEAR(sum / kCount, 0.5, 0.01);
  EXPECT_NEAR(normal_sum / kCount, 0.0, 0.02);
  EXPECT_NEAR(normal_squares / kCount, 1.0, 0.02);
}

}  // namespace
}  // namespace adtrain
