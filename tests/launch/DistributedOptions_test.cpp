#include "launch/DistributedOptions.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace adtrain {
namespace {

TEST(DistributedOptions, DefaultsAreConsistent) {
  DistributedOptions options;
  Section section("Ranks");
  options.declare(section);
  EXPECT_EQ(section.keys().size(), 8U);
  Findings findings;
  options.check(findings);
  EXPECT_TRUE(findings.empty());
}

TEST(DistributedOptions, BucketsAreGivenInMebibytes) {
  DistributedOptions options;
  options.bucket_megabytes = 2.5;
  options.first_bucket_megabytes = 0.25;
  EXPECT_EQ(options.reducer().bucket_bytes, 2621440);
  EXPECT_EQ(options.reducer().first_bucket_bytes, 262144);
}

TEST(DistributedOptions, AFirstBucketLargerThanTheOthersIsFound) {
  DistributedOptions options;
  options.bucket_megabytes = 1;
  options.first_bucket_megabytes = 2;
  Findings findings;
  options.check(findings);
  ASSERT_EQ(findings.all().size(), 1U);
  EXPECT_EQ(findings.all()[0].key, "first_bucket_megabytes");
  EXPECT_THAT(findings.all()[0].message, testing::HasSubstr("bucket_megabytes = 1"));
}

}  // namespace
}  // namespace adtrain
