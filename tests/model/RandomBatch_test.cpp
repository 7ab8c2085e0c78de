#include "model/RandomBatch.h"

#include <gtest/gtest.h>

#include "support/FreshSeed.h"

namespace adtrain {
namespace {

/// What ADTRAIN_TEST_SEED repeats: see tests/support/seed_of_torch.cpp.
TEST(RandomBatch, IsThatOfTheSeedThatAFailureNames) {
  const Batch drawn = testing::random_plain(3, 40);
  at::manual_seed(fresh_seed());
  const Batch again = testing::random_plain(3, 40);
  EXPECT_TRUE(drawn.states.equal(again.states));
  EXPECT_TRUE(drawn.actions.equal(again.actions));
  EXPECT_FALSE(drawn.states.equal(testing::random_plain(3, 40).states));
}

}  // namespace
}  // namespace adtrain
