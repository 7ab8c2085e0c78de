#include "base/Fault.h"

#include <cerrno>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/Error.h"

namespace adtrain {
namespace {

using testing::AllOf;
using testing::HasSubstr;

std::string refusal(const std::string& text) {
  try {
    FaultPlan::parse(text);
  } catch (const ConfigError& error) {
    return error.what();
  }
  return "";
}

TEST(Fault, ReadsKindRankAndSteps) {
  const FaultPlan one = FaultPlan::parse("kill@2:12");
  EXPECT_EQ(one.kind, FaultKind::kKill);
  EXPECT_EQ(one.rank, 2);
  EXPECT_EQ(one.first_step, 12);
  EXPECT_EQ(one.last_step, 12);
  const FaultPlan some = FaultPlan::parse("no_space@0:3-5");
  EXPECT_EQ(some.kind, FaultKind::kNoSpace);
  EXPECT_EQ(some.first_step, 3);
  EXPECT_EQ(some.last_step, 5);
  EXPECT_GT(FaultPlan::parse("slow@0:3-").last_step, int64_t{1} << 60);
  const FaultPlan saving = FaultPlan::parse("kill_in_save:renamed@0:4");
  EXPECT_EQ(saving.kind, FaultKind::kKillInSave);
  EXPECT_EQ(saving.moment, SaveMoment::kRenamed);
  EXPECT_EQ(saving.first_step, 4);
  const FaultPlan memory = FaultPlan::parse("out_of_memory:backward@1:16-");
  EXPECT_EQ(memory.kind, FaultKind::kOutOfMemory);
  EXPECT_EQ(memory.step_moment, StepMoment::kBackward);
  EXPECT_EQ(FaultPlan::parse("out_of_memory@1:16").step_moment, StepMoment::kBeginning);
}

TEST(Fault, RefusesWhatItDoesNotUnderstandAndListsTheKinds) {
  for (const char* text : {"kill", "kill@1", "kill@:3", "kill@-1:3", "kill@x:3", "kill@1:", "kill@1:0",
                           "kill@1:5-3", "kill@1:3x", "kill@1:3-x", "kill@1:99999999999999999999", "@1:3",
                           "kill_in_save:lunch@0:3", "kil@1:3"}) {
    EXPECT_THAT(refusal(text), AllOf(HasSubstr("ADTRAIN_FAULT"), HasSubstr(text), HasSubstr("nan_gradient"),
                                     HasSubstr("kill_in_save:pruning")));
  }
  EXPECT_THAT(refusal("kil@1:3"), HasSubstr("did you mean 'kill'"));
}

TEST(Fault, HoldsOnItsRankFromItsFirstStepToItsLast) {
  Fault fault(FaultPlan::parse("no_space@1:3-4"));
  EXPECT_EQ(fault.write_error(), 0) << "before the first step";
  for (int64_t step = 1; step <= 6; ++step) {
    fault.at_step(0, step);
    EXPECT_EQ(fault.write_error(), 0) << "on another rank";
    fault.at_step(1, step);
    EXPECT_EQ(fault.write_error(), step == 3 || step == 4 ? ENOSPC : 0) << "step " << step;
    EXPECT_FALSE(fault.holds(FaultKind::kNanLoss));
  }
}

TEST(Fault, WithoutAPlanNothingHappens) {
  Fault fault({});
  EXPECT_FALSE(fault.is_planned());
  fault.at_step(0, 1);
  fault.at_moment_of_saving(SaveMoment::kFolder);
  EXPECT_EQ(fault.write_error(), 0);
}

void take_step(const char* plan, int64_t step) {
  Fault(FaultPlan::parse(plan)).at_step(0, step);
}

TEST(FaultDeathTest, StrikesAtItsStep) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  EXPECT_EXIT(take_step("kill@0:2", 2), testing::KilledBySignal(SIGKILL), "");
  EXPECT_EXIT(take_step("abort@0:2", 2), testing::KilledBySignal(SIGABRT), "");
  EXPECT_EXIT(take_step("exit0@0:2", 2), testing::ExitedWithCode(0), "");
  EXPECT_EXIT(take_step("exit1@0:2", 2), testing::ExitedWithCode(1), "");
  EXPECT_THROW(take_step("throw@0:2", 2), std::runtime_error);
  take_step("kill@0:2", 1);
  take_step("kill@1:2", 2);
}

TEST(FaultDeathTest, KillsAtOneMomentOfSaving) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  Fault fault(FaultPlan::parse("kill_in_save:renamed@0:2"));
  fault.at_step(0, 1);
  fault.at_moment_of_saving(SaveMoment::kRenamed);
  fault.at_step(0, 2);
  fault.at_moment_of_saving(SaveMoment::kManifest);
  EXPECT_EXIT(fault.at_moment_of_saving(SaveMoment::kRenamed), testing::KilledBySignal(SIGKILL), "");
}

}  // namespace
}  // namespace adtrain
