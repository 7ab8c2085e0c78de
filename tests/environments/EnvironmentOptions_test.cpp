#include "environments/EnvironmentOptions.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/Error.h"
#include "environments/TaskFamily.h"

namespace adtrain {
namespace {

using testing::HasSubstr;

TEST(EnvironmentOptions, AreAsPublishedForTheFamilyWhereNotSet) {
  EnvironmentOptions options;
  EXPECT_EQ(options.episode_horizon(), 20);
  EXPECT_EQ(options.split_seed(), 0);
  options.env = "darkkeytodoor";
  EXPECT_EQ(options.episode_horizon(), 50);
  EXPECT_EQ(options.split_seed(), 4);
  EXPECT_EQ(options.train_ratio(), 0.95);
  options.horizon = 7;
  options.train_env_ratio = 0.5;
  EXPECT_EQ(options.episode_horizon(), 7);
  EXPECT_EQ(options.train_ratio(), 0.5);
}

TEST(EnvironmentOptions, AliasesNameTheSameFamily) {
  for (const char* alias : {"darkroomkeytodoor", "dark_key_to_door", "DarkKeyToDoor"}) {
    EnvironmentOptions options;
    options.env = alias;
    EXPECT_EQ(options.family(), Family::kDarkKeyToDoor);
    EXPECT_EQ(options.family_name(), "darkkeytodoor");
  }
}

TEST(EnvironmentOptions, AnotherNameIsALabelOfOwnTasks) {
  EnvironmentOptions options;
  options.env = "CartPole";
  EXPECT_EQ(options.family(), Family::kOwn);
  EXPECT_TRUE(options.has_own_tasks());
  EXPECT_EQ(options.family_name(), "CartPole");
  EXPECT_EQ(options.split_seed(), 0);
  EXPECT_EQ(options.train_ratio(), 0.9);
  EXPECT_TRUE(options.spaces().empty()) << "nobody said what they are";
  EXPECT_THROW(options.episode_horizon(), ConfigError);
}

/// Of these options, "key: message" of each finding.
std::vector<std::string> findings_of(const EnvironmentOptions& options) {
  Findings findings;
  options.check(findings);
  std::vector<std::string> texts;
  for (const auto& [key, message] : findings.all()) texts.push_back(key + ": " + message);
  return texts;
}

TEST(EnvironmentOptions, WhatMakesNoSenseForOwnTasksIsNamed) {
  EnvironmentOptions options;
  options.env = "a/b";
  options.horizon = 20;
  options.grid_size = 5;
  EXPECT_THAT(findings_of(options),
              testing::ElementsAre(HasSubstr("env: found 'a/b'"), HasSubstr("horizon: found 20"),
                                   HasSubstr("grid_size: found 5")));
  EnvironmentOptions packed;
  packed.env = "rooms";
  packed.observation_space = R"({"type": "MultiDiscrete", "nvec": [[156, 156]]})";
  packed.action_space = R"({"type": "Discrete", "n": 6})";
  packed.observation_packing = "13,12";
  EXPECT_THAT(findings_of(packed), testing::IsEmpty());
  EXPECT_THAT(packed.spaces().front().packed_digits, testing::ElementsAre(13, 12));
  packed.env = "darkroom";
  EXPECT_THAT(findings_of(packed), testing::SizeIs(3)) << "the spaces of a family are its own";
}

TEST(EnvironmentOptions, AnUnknownFamilyHasNoTasksAndTheNearestIsNamed) {
  EnvironmentOptions options;
  options.env = "darkrom";
  try {
    TaskFamily::of(options);
    FAIL() << "expected a ConfigError";
  } catch (const ConfigError& error) {
    EXPECT_THAT(error.what(), HasSubstr("'darkrom'"));
    EXPECT_THAT(error.what(), HasSubstr("did you mean 'darkroom'"));
  }
}

TEST(EnvironmentOptions, RefusesOtherActionsAndEndlessSplits) {
  EnvironmentOptions options;
  options.num_actions = 4;
  options.env = "darkkeytodoor";
  options.grid_size = 200;
  Findings findings;
  options.check(findings);
  ASSERT_EQ(findings.all().size(), 2);
  EXPECT_EQ(findings.all()[0].key, "num_actions");
  EXPECT_EQ(findings.all()[1].key, "grid_size");
}

TEST(EnvironmentOptions, KeysRefuseWhatNoRoomCanBe) {
  EnvironmentOptions options;
  Section section("Environment");
  options.declare(section);
  const auto refuses = [&](const std::string& name, const std::string& value) {
    for (Key& key : section.keys()) {
      if (key.name() == name) return key.assign(value, false).has_value();
    }
    return false;
  };
  EXPECT_TRUE(refuses("grid_size", "1"));
  EXPECT_TRUE(refuses("grid_size", "256"));
  EXPECT_TRUE(refuses("horizon", "0"));
  EXPECT_TRUE(refuses("train_env_ratio", "0"));
  EXPECT_TRUE(refuses("train_env_ratio", "1.1"));
  EXPECT_FALSE(refuses("train_env_ratio", "1"));
  EXPECT_FALSE(refuses("env_split_seed", "-3"));
}

}  // namespace
}  // namespace adtrain
