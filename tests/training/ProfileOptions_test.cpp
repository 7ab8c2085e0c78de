#include "training/ProfileOptions.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/Error.h"

namespace adtrain {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

std::string finding(const std::string& steps, const std::string& ranks = "all") {
  ProfileOptions options{.steps = steps, .ranks = ranks};
  Findings findings;
  options.check(findings, /*train_timesteps=*/1000);
  std::string text;
  for (const auto& [key, message] : findings.all()) text += key + ": " + message + "\n";
  return text;
}

TEST(ProfileOptions, NameStepsAsTheLogCountsThem) {
  EXPECT_FALSE(ProfileOptions().range());
  EXPECT_FALSE(ProfileOptions{.steps = ""}.range());
  const auto several = ProfileOptions{.steps = "100-110"}.range(),
             one = ProfileOptions{.steps = " 7 "}.range();
  ASSERT_TRUE(several && one);
  EXPECT_EQ(several->first, 100);
  EXPECT_EQ(several->last, 110);
  EXPECT_EQ(one->first, 7);
  EXPECT_EQ(one->last, 7);
}

TEST(ProfileOptions, WhatIsNoRangeOfStepsIsFound) {
  for (const char* good : {"", "1", "100-110", "990-1100", "1-200", " 3 - 4 "}) {
    EXPECT_EQ(finding(good), "") << good;
  }
  for (const char* bad : {"x", "0-3", "-3", "3-", "3-x", "3-4-5", "1e3", "99999999999999", "3,4"}) {
    EXPECT_THAT(finding(bad), HasSubstr(std::string("profile_steps: found '") + bad + "'"));
    EXPECT_THAT(finding(bad), HasSubstr("expected steps such as 100-110"));
  }
  EXPECT_THAT(finding("9-3"), HasSubstr("ends before it begins"));
  EXPECT_THAT(finding("1-201"), HasSubstr("201 steps; expected at most 200"));
  EXPECT_THAT(finding("1001-1002"), HasSubstr("train_timesteps (1000)"));
}

TEST(ProfileOptions, WhatIsNoListOfRanksIsFound) {
  for (const char* good : {"all", "0", "0,3", "3, 0", "0-3"}) EXPECT_EQ(finding("1", good), "") << good;
  for (const char* bad : {"", "some", "0,", "3-0", "-1", "0,,1"}) {
    EXPECT_THAT(finding("1", bad), HasSubstr("profile_ranks: found"));
    EXPECT_THAT(finding("1", bad), HasSubstr("[0, 3]"));
  }
}

TEST(ProfileOptions, NameRanksOfTheRun) {
  EXPECT_THAT(ProfileOptions().ranks_of(3), ElementsAre(0, 1, 2));
  EXPECT_THAT((ProfileOptions{.steps = {}, .ranks = "3, 0,3"}.ranks_of(4)), ElementsAre(0, 3));
  try {
    ProfileOptions{.steps = {}, .ranks = "0,3"}.ranks_of(3);
    FAIL() << "expected a ConfigError";
  } catch (const ConfigError& error) {
    EXPECT_THAT(error.what(), testing::AllOf(HasSubstr("profile_ranks: found rank 3"), HasSubstr("0 to 2")));
  }
}

}  // namespace
}  // namespace adtrain
