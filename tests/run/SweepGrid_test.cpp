#include "run/sweep/SweepGrid.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/Error.h"

namespace adtrain {
namespace {

using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::ThrowsMessage;

std::vector<std::string> names_of(const std::vector<SweepPoint>& points) {
  std::vector<std::string> names;
  for (const SweepPoint& point : points) names.push_back(point.name);
  return names;
}

TEST(SweepGrid, EveryCombinationWithEverySeedTheLastVariesFastest) {
  const SweepGrid grid({"lr=1e-3,3e-3", "tf_n_layer=4", "n_transit=60,120"});
  EXPECT_THAT(grid.first(), ElementsAre("lr=1e-3", "tf_n_layer=4", "n_transit=60"));
  const std::vector<SweepPoint> points = grid.points({7, 8});
  EXPECT_THAT(names_of(points), ElementsAre("lr-1e-3-n_transit-60-seed-7", "lr-1e-3-n_transit-60-seed-8",
                                            "lr-1e-3-n_transit-120-seed-7", "lr-1e-3-n_transit-120-seed-8",
                                            "lr-3e-3-n_transit-60-seed-7", "lr-3e-3-n_transit-60-seed-8",
                                            "lr-3e-3-n_transit-120-seed-7", "lr-3e-3-n_transit-120-seed-8"));
  EXPECT_THAT(points[5].overrides, ElementsAre("lr=3e-3", "tf_n_layer=4", "n_transit=60", "seed=8"));
}

TEST(SweepGrid, CommasInListsAndQuotesBelongToTheValue) {
  const SweepGrid grid({"plugins=[\"a.so\", \"b,c.so\"]", "traj_dir='a,b','c'", "profile_ranks=[0,1],[2]"});
  EXPECT_THAT(grid.first(),
              ElementsAre("plugins=[\"a.so\", \"b,c.so\"]", "traj_dir='a,b'", "profile_ranks=[0,1]"));
  EXPECT_EQ(grid.points({}).size(), 4U);
}

TEST(SweepGrid, NamesAreAFoldersAndDiffer) {
  const SweepGrid grid({"traj_dir=a/b,a b,a_b"});
  EXPECT_THAT(names_of(grid.points({})), ElementsAre("traj_dir-a_b", "traj_dir-a_b-2", "traj_dir-a_b-3"));
  EXPECT_THAT(names_of(SweepGrid({"lr=1", "seed=4"}).points({4, 5})), ElementsAre("seed-4", "seed-5"));
}

TEST(SweepGrid, WhatIsNoSweepIsRefused) {
  EXPECT_THAT([] { SweepGrid({"lr"}); }, ThrowsMessage<ConfigError>(HasSubstr("lr=1e-3,3e-3")));
  EXPECT_THAT([] { SweepGrid({"lr=1,,2"}); }, ThrowsMessage<ConfigError>(HasSubstr("an empty value")));
  EXPECT_THAT([] { SweepGrid({"lr=1,1"}); }, ThrowsMessage<ConfigError>(HasSubstr("'1' twice")));
  EXPECT_THAT([] { SweepGrid({"lr=1", "lr=2"}); }, ThrowsMessage<ConfigError>(HasSubstr("--set lr=1,2")));
  EXPECT_THAT([] { SweepGrid({"lr=1"}).points({}); },
              ThrowsMessage<ConfigError>(AllOf(HasSubstr("nothing varies"), HasSubstr("--seeds 5"))));
  EXPECT_THAT([] { SweepGrid({"seed=1,2"}).points({3}); }, ThrowsMessage<ConfigError>(HasSubstr("--seeds")));
}

TEST(SweepGrid, TooManyAreRefusedBeforeTheyTakeMemory) {
  std::vector<std::string> assignments;
  for (int key = 0; key < 40; ++key)
    assignments.push_back("key" + std::to_string(key) + "=0,1,2,3,4,5,6,7,8,9");
  EXPECT_THAT([&] { SweepGrid(assignments).points({}); }, ThrowsMessage<ConfigError>(HasSubstr("10 000")));
}

}  // namespace
}  // namespace adtrain
