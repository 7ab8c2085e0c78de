#include "base/Words.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace adtrain {
namespace {

using testing::ElementsAre;

TEST(Words, AreTrimmedAtBothEndsOnly) {
  EXPECT_EQ(trimmed(" \ta b\t \r"), "a b");
  EXPECT_EQ(trimmed("a"), "a");
  EXPECT_EQ(trimmed(" \t\r"), "");
  EXPECT_EQ(trimmed(""), "");
}

TEST(Words, BetweenCommasMayBeEmpty) {
  EXPECT_THAT(between_commas("0, a b ,\t2\r"), ElementsAre("0", "a b", "2"));
  EXPECT_THAT(between_commas("1,,2,"), ElementsAre("1", "", "2", ""));
  EXPECT_THAT(between_commas(""), ElementsAre(""));
}

}  // namespace
}  // namespace adtrain
