#include "training/TrainingOptions.h"

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
  TrainingOptions options;
  options.global_batch_size = 50;
  try {
    options.micro_batch(4);
    FAIL() << "expected a ConfigError";
  } catch (const ConfigError& error) {
    EXPECT_THAT(error.what(), testing::AllOf(testing::HasSubstr("50"), testing::HasSubstr("4 ranks"),
                                             testing::HasSubstr("52")));
  }
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
