#include "collection/CollectionOptions.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace adtrain {
namespace {

TEST(CollectionOptions, AreAsPublishedForTheFamilyWhereNotSet) {
  const CollectionOptions options;
  const PpoSettings darkroom = options.ppo(Family::kDarkroom);
  EXPECT_EQ(darkroom.rollout_steps, 20);
  EXPECT_EQ(darkroom.batch_size, 50);
  EXPECT_EQ(darkroom.epochs, 20);
  EXPECT_EQ(darkroom.rollouts(), 50);
  EXPECT_EQ(darkroom.history_steps(), 1000);
  EXPECT_EQ(options.ppo(Family::kDarkroomPermuted).rollout_steps, 50);
  const PpoSettings key_to_door = options.ppo(Family::kDarkKeyToDoor);
  EXPECT_EQ(key_to_door.batch_size, 100);
  EXPECT_EQ(key_to_door.epochs, 10);
}

TEST(CollectionOptions, RoundTheTotalUpToWholeRolloutsAsStableBaselines3Does) {
  CollectionOptions options;
  options.n_steps = 80;
  options.batch_size = 40;
  const PpoSettings settings = options.ppo(Family::kDarkroom);
  EXPECT_EQ(settings.rollouts(), 13);
  EXPECT_EQ(settings.history_steps(), 1040);
  EXPECT_EQ(settings.batch_size, 40);
}

TEST(CollectionOptions, NameTheFileAsThePythonProjectsDo) {
  CollectionOptions options;
  options.alg_seed = 42;
  EnvironmentOptions environment;
  environment.env = "dark_key_to_door";
  EXPECT_EQ(options.file_name(environment), "history_darkkeytodoor_PPO_alg-seed42.hdf5");
}

TEST(CollectionOptions, TheAlgorithmIsANameThatFitsAFile) {
  CollectionOptions options;
  options.alg = "QL";
  Findings none;
  options.check(none, EnvironmentOptions());
  EXPECT_TRUE(none.empty());
  EXPECT_EQ(options.file_name(EnvironmentOptions()), "history_darkroom_QL_alg-seed0.hdf5");
  EXPECT_THAT(options.notices(), testing::ElementsAre(testing::AllOf(testing::HasSubstr("alg: QL is a name"),
                                                                     testing::HasSubstr("runs PPO"))));
  for (const char* ppo : {"PPO", "ppo"}) {
    options.alg = ppo;
    EXPECT_THAT(options.notices(), testing::IsEmpty());
  }
  for (const std::string& bad :
       {std::string(), std::string("a/b"), std::string("a\nb"), std::string(101, 'a')}) {
    options.alg = bad;
    Findings findings;
    options.check(findings, EnvironmentOptions());
    ASSERT_EQ(findings.all().size(), 1) << bad;
    EXPECT_EQ(findings.all()[0].key, "alg");
    EXPECT_THAT(findings.all()[0].message, testing::HasSubstr("becomes part of a file's name"));
  }
}

TEST(CollectionOptions, AutomaticMarkersAreThoseOfCompressedContext) {
  for (const bool compressed : {false, true}) {
    CollectionOptions options;
    options.write_compress_markers = RolloutMarkers::kAuto;
    options.decide(compressed);
    EXPECT_EQ(options.write_compress_markers, compressed ? RolloutMarkers::kYes : RolloutMarkers::kNo);
    options.write_compress_markers = RolloutMarkers::kNo;
    options.decide(compressed);
    EXPECT_EQ(options.write_compress_markers, RolloutMarkers::kNo) << "what is set stays";
  }
}

TEST(CollectionOptions, RefuseToKeepMoreStreamsThanThereAre) {
  CollectionOptions options;
  options.kept_streams = 101;
  Findings findings;
  options.check(findings, EnvironmentOptions());
  ASSERT_EQ(findings.all().size(), 1);
  EXPECT_EQ(findings.all()[0].key, "kept_streams");
  options.source_policies = 2;
  Findings none;
  options.check(none, EnvironmentOptions());
  EXPECT_TRUE(none.all().empty()) << "two policies have twice as many streams";
  EXPECT_EQ(options.streams_kept_of_policy(), 51);
  options.kept_streams = 1;
  Findings too_few;
  options.check(too_few, EnvironmentOptions());
  ASSERT_EQ(too_few.all().size(), 1);
  EXPECT_EQ(too_few.all()[0].key, "source_policies");
}

TEST(CollectionOptions, TakeEveryHardwareThreadUnlessToldOtherwise) {
  CollectionOptions options;
  EXPECT_GE(options.threads(), 1);
  options.n_process = 3;
  EXPECT_EQ(options.threads(), 3);
}

TEST(CollectionOptions, OnlyOwnTasksAreCompressedUnlessTold) {
  CollectionOptions options;
  EXPECT_EQ(options.compression(Family::kDarkroom), 0);
  EXPECT_EQ(options.compression(Family::kOwn), 4);
  options.history_compression = 0;
  EXPECT_EQ(options.compression(Family::kOwn), 0);
}

}  // namespace
}  // namespace adtrain
