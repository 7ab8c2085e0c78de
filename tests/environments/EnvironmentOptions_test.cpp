#include "environments/EnvironmentOptions.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/Error.h"

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

TEST(EnvironmentOptions, AnUnknownFamilyIsAConfigErrorThatNamesTheNearest) {
  EnvironmentOptions options;
  options.env = "darkrom";
  try {
    options.family();
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
  EXPECT_TRUE(refuses("env", "lightroom"));
  EXPECT_FALSE(refuses("train_env_ratio", "1"));
  EXPECT_FALSE(refuses("env_split_seed", "-3"));
}

}  // namespace
}  // namespace adtrain
