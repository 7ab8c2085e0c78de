#include "launch/SlurmNotation.h"

#include <gtest/gtest.h>

namespace adtrain {
namespace {

TEST(SlurmNotation, FirstHostKeepsItsPadding) {
  EXPECT_EQ(first_host("n05"), "n05");
  EXPECT_EQ(first_host("n[05-09]"), "n05");
  EXPECT_EQ(first_host("n[007,9-12],m1"), "n007");
  EXPECT_EQ(first_host("gpu1,gpu[3-4]"), "gpu1");
  EXPECT_EQ(first_host("r[2-3]n[08,11]-ib"), "r2n08-ib");
  EXPECT_EQ(first_host(""), "");
}

TEST(SlurmNotation, TasksOnANode) {
  EXPECT_EQ(tasks_on_node("4", 0), 4);
  EXPECT_EQ(tasks_on_node("4(x2),1", 0), 4);
  EXPECT_EQ(tasks_on_node("4(x2),1", 1), 4);
  EXPECT_EQ(tasks_on_node("4(x2),1", 2), 1);
  EXPECT_EQ(tasks_on_node("2,3(x2),12", 3), 12);
  EXPECT_EQ(tasks_on_node("4(x2),1", 3), 0);
}

}  // namespace
}  // namespace adtrain
