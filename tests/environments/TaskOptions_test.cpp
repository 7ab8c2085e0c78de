#include "environments/TaskOptions.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace adtrain {
namespace {

using testing::AllOf;
using testing::HasSubstr;

/// "key: message" of the only finding; "" where there is none.
std::string finding(const TaskOptions& options, const EnvironmentOptions& environment = {}) {
  Findings findings;
  options.check(findings, environment);
  EXPECT_LE(findings.all().size(), 1U);
  return findings.empty() ? "" : findings.all()[0].key + ": " + findings.all()[0].message;
}

TEST(TaskOptions, AllTasksAreThereUnlessSomeAreNamed) {
  EXPECT_EQ(TaskOptions().present(81).text(), "0-80");
  EXPECT_EQ((TaskOptions{.tasks = "0,3,38", .train_tasks = {}}.present(81).text()), "0,3,38");
  EXPECT_EQ(finding({}), "");
  EXPECT_EQ(finding({.tasks = "0-40,80", .train_tasks = "2,80"}), "");
}

TEST(TaskOptions, NumbersAreOfTheFamily) {
  EXPECT_THAT(
      finding({.tasks = "0-81", .train_tasks = {}}),
      AllOf(HasSubstr("tasks: found task 81"), HasSubstr("darkroom with grid_size 9"), HasSubstr("0 to 80")));
  EXPECT_THAT(finding({.tasks = {}, .train_tasks = "some"}), HasSubstr("train_tasks: found 'some'"));
  EnvironmentOptions permuted;
  permuted.env = "darkroompermuted";
  EXPECT_EQ(finding({.tasks = "0-119", .train_tasks = {}}, permuted), "");
}

TEST(TaskOptions, OfOwnTasksAnyNumbersMayBeThere) {
  EnvironmentOptions own;
  own.env = "cartpole";
  EXPECT_EQ(finding({.tasks = "0-9999", .train_tasks = {}}, own), "");
  EXPECT_THAT(finding({.tasks = "some", .train_tasks = {}}, own), HasSubstr("tasks: found 'some'"));
}

TEST(TaskOptions, WhatIsTrainedOnIsThere) {
  EXPECT_THAT(finding({.tasks = "0-9", .train_tasks = "8-12,40"}),
              AllOf(HasSubstr("train_tasks: found 10-12,40"), HasSubstr("tasks (0-9)")));
}

TEST(TaskOptions, AShareOfNoTaskIsRefused) {
  EnvironmentOptions tiny;
  tiny.train_env_ratio = 0.006;
  EXPECT_THAT(finding({}, tiny), AllOf(HasSubstr("train_env_ratio: found 0.006"), HasSubstr("none of the 81"),
                                       HasSubstr("above 0.00617")));
  EXPECT_EQ(finding({.tasks = {}, .train_tasks = "5"}, tiny), "") << "the ratio is not used";
  tiny.train_env_ratio = 0.0062;
  EXPECT_EQ(finding({}, tiny), "");
}

}  // namespace
}  // namespace adtrain
