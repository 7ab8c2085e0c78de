#include "training/ReturnOptions.h"

#include <gtest/gtest.h>

namespace adtrain {
namespace {

TEST(ReturnOptions, TheLastStepIsMeasuredToo) {
  ReturnOptions options;
  EXPECT_FALSE(options.due(20, 20)) << "nothing is measured";
  options.interval = 8;
  EXPECT_FALSE(options.due(7, 20));
  EXPECT_TRUE(options.due(8, 20));
  EXPECT_FALSE(options.due(19, 20));
  EXPECT_TRUE(options.due(20, 20));
}

}  // namespace
}  // namespace adtrain
