#include "run/sweep/SweepSlots.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/Error.h"

namespace adtrain {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::ThrowsMessage;

const std::vector<SweepGpu> kFour = {{"0"}, {"3"}, {"GPU-a", true}, {"5"}};

TEST(SweepSlots, AGpuForEachRankOfWhatIsFree) {
  const SweepSlots slots = SweepSlots::of(kFour, 16, 1, 100, {});
  EXPECT_THAT(slots.devices, ElementsAre("0", "3", "5"));
  EXPECT_THAT(slots.left_out, ElementsAre("GPU-a"));
  EXPECT_EQ(slots.threads, 0);
  EXPECT_THAT(SweepSlots::of(kFour, 16, 2, 100, {}).devices, ElementsAre("0,3"));
  EXPECT_THAT(SweepSlots::of(kFour, 16, 1, 2, {}).devices, ElementsAre("0", "3"));
  EXPECT_THAT(SweepSlots::of(kFour, 16, 1, 100, 1).devices, ElementsAre("0"));
}

TEST(SweepSlots, WhereTooFewAreFreeAllAreTaken) {
  const SweepSlots slots = SweepSlots::of(kFour, 16, 4, 100, {});
  EXPECT_THAT(slots.devices, ElementsAre("0,3,GPU-a,5"));
  EXPECT_THAT(slots.left_out, IsEmpty());
  EXPECT_THAT([] { SweepSlots::of(kFour, 16, 5, 100, {}); },
              ThrowsMessage<ConfigError>(HasSubstr("at most 4")));
}

TEST(SweepSlots, OnTheCpuCoresAreShared) {
  const SweepSlots slots = SweepSlots::of({}, 8, 1, 3, {});
  EXPECT_EQ(slots.count(), 3);
  EXPECT_EQ(slots.threads, 2);
  EXPECT_THAT(slots.devices, ElementsAre("", "", ""));
  EXPECT_EQ(SweepSlots::of({}, 8, 3, 100, {}).count(), 2);
  EXPECT_EQ(SweepSlots::of({}, 2, 4, 100, {}).count(), 1);
  EXPECT_EQ(SweepSlots::of({}, 2, 1, 100, 5).count(), 5);
  EXPECT_EQ(SweepSlots::of({}, 2, 1, 100, 5).threads, 1);
}

}  // namespace
}  // namespace adtrain
