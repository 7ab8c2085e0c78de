#include "training/ReturnOptions.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace adtrain {
namespace {

using testing::AllOf;
using testing::HasSubstr;
using testing::Not;

std::string finding_of(int64_t interval, int64_t ckpt_interval) {
  ReturnOptions options;
  options.interval = interval;
  Findings findings;
  options.check(findings, ckpt_interval);
  if (findings.empty()) return "";
  EXPECT_EQ(findings.all().size(), 1U);
  EXPECT_EQ(findings.all()[0].key, "return_interval");
  return findings.all()[0].message;
}

TEST(ReturnOptions, EachMeasuredStepHasACheckpoint) {
  EXPECT_EQ(finding_of(0, 1000), "");
  EXPECT_EQ(finding_of(1000, 1000), "");
  EXPECT_EQ(finding_of(10000, 1000), "");
  EXPECT_THAT(finding_of(2500, 1000),
              AllOf(HasSubstr("found 2500"), HasSubstr("ckpt_interval (1000)"),
                    HasSubstr("return_interval: 2000 or 3000"), HasSubstr("ckpt_interval: 2500")));
  EXPECT_THAT(finding_of(300, 1000), AllOf(HasSubstr("return_interval: 1000, or"), Not(HasSubstr("0 or"))));
}

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
