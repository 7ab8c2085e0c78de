#include "memory/MemorySplit.h"

#include <gtest/gtest.h>

namespace adtrain {
namespace {

constexpr int64_t kGigabyte = 1'000'000'000;

TEST(MemorySplit, ItsTotalIsTheSumOfAllParts) {
  MemorySplit split;
  int64_t sum = 0;
  for (const auto& [name, bytes] : kMemoryParts) sum += split.*bytes = sum + 1;
  EXPECT_EQ(split.total(), sum);
  EXPECT_EQ(sizeof(MemorySplit), kMemoryParts.size() * sizeof(int64_t)) << "a part that is not listed";
}

TEST(MemorySplit, ItsTextBeginsWithTheLargestAndLeavesOutTheSmall) {
  const MemorySplit split = {.parameters = 2 * kGigabyte,
                             .activations = 97 * kGigabyte,
                             .histories = kGigabyte / 2,
                             .other = kGigabyte};
  EXPECT_EQ(text_of(split), "activations 97.00 GB, parameters 2.00 GB");
}

TEST(MemorySplit, ItsJsonNamesEveryPart) {
  const MemorySplit split = {.moments = 3, .communication = 5};
  EXPECT_EQ(to_json(split).dump(),
            R"({"parameters":0,"gradients":0,"moments":3,"activations":0,"histories":0,"graph":0,)"
            R"("communication":5,"other":0})");
}

}  // namespace
}  // namespace adtrain
