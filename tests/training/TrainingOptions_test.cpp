#include "training/TrainingOptions.h"

#include <vector>

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/Error.h"

namespace adtrain {
namespace {

TEST(TrainingOptions, TheGlobalBatchIsSharedOutOverRanksAndAccumulation) {
  TrainingOptions options;
  options.global_batch_size = 48;
  options.gradient_accumulation_steps = 2;
  EXPECT_EQ(options.micro_batch(1), 24);
  EXPECT_EQ(options.micro_batch(3), 8);
  options.global_batch_size.reset();
  EXPECT_EQ(options.micro_batch(3), options.train_batch_size);
}

TEST(TrainingOptions, AGlobalBatchThatDoesNotDivideNamesTheNearestThatDoes) {
  struct Case {
    int64_t global_batch, ranks;
    const char* nearest;
  };
  const std::vector<Case> cases = {
      {51, 4, "is 52"}, {12, 5, "is 10"}, {50, 4, "is 48"}, {3, 8, "is 8"}, {2, 4, "is 4"}};
  for (const Case& each : cases) {
    TrainingOptions options;
    options.global_batch_size = each.global_batch;
    for (const bool with_accumulation : {true, false}) {
      try {
        if (with_accumulation) options.micro_batch(each.ranks);
        if (!with_accumulation) options.share_of_global_batch(each.ranks);
        ADD_FAILURE() << "expected a ConfigError";
      } catch (const ConfigError& error) {
        EXPECT_THAT(error.what(), testing::AllOf(testing::HasSubstr(fmt::format("{} seq", each.global_batch)),
                                                 testing::HasSubstr(fmt::format("{} ranks", each.ranks)),
                                                 testing::EndsWith(each.nearest)));
      }
    }
  }
}

TEST(TrainingOptions, AGlobalBatchThatDoesNotDivideIntoMicroBatchesNamesTheNearestThatDoes) {
  TrainingOptions options;
  options.global_batch_size = 12;
  options.gradient_accumulation_steps = 7;
  Findings findings;
  options.check(findings);
  ASSERT_EQ(findings.all().size(), 1U);
  EXPECT_THAT(findings.all()[0].message, testing::EndsWith("nearest multiple: 14"));
}

TEST(TrainingOptions, ImpossibleCombinationsAreFound) {
  TrainingOptions options;
  options.train_timesteps = 10;
  options.num_warmup_steps = 11;
  options.global_batch_size = 5;
  options.gradient_accumulation_steps = 2;
  Findings findings;
  options.check(findings);
  ASSERT_EQ(findings.all().size(), 2U);
  EXPECT_EQ(findings.all()[0].key, "num_warmup_steps");
  EXPECT_EQ(findings.all()[1].key, "global_batch_size");
}

}  // namespace
}  // namespace adtrain
