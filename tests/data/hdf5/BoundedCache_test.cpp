#include "data/hdf5/BoundedCache.h"

#include <string>

#include <gtest/gtest.h>

#include "base/Random.h"

namespace adtrain {
namespace {

using Cache = BoundedCache<std::string, int>;

void put(Cache& cache, const std::string& key, int value, size_t cost) {
  cache.put(key, std::make_shared<const int>(value), cost);
}

TEST(BoundedCache, DropsWhatWasNotUsedForLongest) {
  Cache cache(10);
  put(cache, "a", 1, 4);
  put(cache, "b", 2, 4);
  ASSERT_NE(cache.get("a"), nullptr);
  put(cache, "c", 3, 4);
  EXPECT_EQ(cache.get("b"), nullptr);
  EXPECT_EQ(*cache.get("a"), 1);
  EXPECT_EQ(*cache.get("c"), 3);
}

TEST(BoundedCache, WhoHoldsAValueKeepsIt) {
  Cache cache(1);
  put(cache, "a", 1, 1);
  const auto held = cache.get("a");
  put(cache, "b", 2, 1);
  EXPECT_EQ(cache.get("a"), nullptr);
  EXPECT_EQ(*held, 1);
}

TEST(BoundedCache, TheFirstValueOfAKeyStays) {
  Cache cache(10);
  put(cache, "a", 1, 1);
  put(cache, "a", 2, 1);
  EXPECT_EQ(*cache.get("a"), 1);
  EXPECT_EQ(cache.cost(), 1U);
}

TEST(BoundedCache, NeverCostsMoreThanItsBudget) {
  RandomStream random(1);
  Cache cache(100);
  for (int i = 0; i < 1000; ++i) {
    put(cache, std::to_string(random.below(50)), i, random.below(120));
    ASSERT_LE(cache.cost(), 100U);
  }
  EXPECT_GT(cache.cost(), 0U);
}

}  // namespace
}  // namespace adtrain
