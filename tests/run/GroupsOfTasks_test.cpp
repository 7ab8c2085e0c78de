#include "run/own/GroupsOfTasks.h"

#include <cmath>

#include <gtest/gtest.h>

namespace adtrain {
namespace {

Space bounded(int64_t size) {
  return Space::box({size}, {-1}, {1});
}
Space unbounded(int64_t size) {
  return Space::box({size}, {-INFINITY}, {INFINITY});
}

GroupOfTasks group_of(const std::string& domain, Space observation, Space action) {
  GroupOfTasks group{};
  group.name = domain.empty() ? "box4-discrete6" : domain;
  group.domain = domain;
  group.observation = std::move(observation);
  group.action = std::move(action);
  return group;
}

TEST(GroupsOfTasks, DataMayBeOfASpaceThatSaysMore) {
  EXPECT_TRUE(may_be_said(std::nullopt, bounded(4)));
  EXPECT_TRUE(may_be_said(bounded(4), bounded(4)));
  EXPECT_TRUE(may_be_said(unbounded(4), bounded(4)));
  EXPECT_FALSE(may_be_said(bounded(4), unbounded(4)));
  EXPECT_FALSE(may_be_said(unbounded(4), bounded(5)));
  EXPECT_FALSE(may_be_said(unbounded(4), Space::box({4}, {-1}, {1}, ElementType::kFloat64)));
  EXPECT_FALSE(may_be_said(Space::discrete(6), Space::discrete(7)));
}

TEST(GroupsOfTasks, AreReadByTheGroupOfTheirSpacesAndName) {
  const TaskSpaces one{bounded(4), Space::discrete(6), {}};
  const GroupOfTasks data = group_of("mujoco", unbounded(4), Space::discrete(6));
  EXPECT_EQ(data.place_among({one}), 0U) << "a single group needs no name";
  EXPECT_FALSE(group_of("mujoco", unbounded(5), Space::discrete(6)).place_among({one}));
  EXPECT_FALSE(group_of("mujoco", unbounded(4), Space::discrete(5)).place_among({one}));

  std::vector<TaskSpaces> groups = {one, one, {bounded(3), Space::discrete(6), {}}};
  groups[0].group = "metaworld";
  groups[1].group = "mujoco";
  groups[2].group = "third";
  EXPECT_EQ(data.place_among(groups), 1U);
  EXPECT_FALSE(group_of("third", unbounded(4), Space::discrete(6)).place_among(groups));
  EXPECT_FALSE(group_of("", unbounded(4), Space::discrete(6)).place_among(groups)) << "two fit";
  EXPECT_EQ(group_of("", unbounded(3), Space::discrete(6)).place_among(groups), 2U) << "one alone fits";
  EXPECT_FALSE(group_of("other", unbounded(3), Space::discrete(6)).place_among(groups));
  groups[1].group = "box4-discrete6";
  EXPECT_EQ(group_of("", unbounded(4), Space::discrete(6)).place_among(groups), 1U);

  GroupOfTasks packed = data;
  packed.packed_digits = {13, 12};
  EXPECT_FALSE(packed.place_among({one}));
}

}  // namespace
}  // namespace adtrain
