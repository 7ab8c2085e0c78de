#include "parallel/SlowRankCause.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace adtrain {
namespace {

using testing::AllOf;
using testing::HasSubstr;

constexpr double kLost = 0.4;  // of their time that the others wait for rank 1

/// Rank 1 of three holds the others back. It computes all the time and nothing odd is seen, until a test adds
/// it.
struct Slow {
  std::vector<RankTimes> times = {
      {.total = 10, .waited = 4.1}, {.total = 10, .waited = 0.1}, {.total = 10, .waited = 4.1}};
  SlowRankEvidence evidence{.host = "node-7",
                            .cpu = {.seconds = 10, .on_core = 9.9, .without_core = 0.01},
                            .load = 9,
                            .cores = 8,
                            .on_gpu = false,
                            .gpu = std::nullopt,
                            .others_on_gpu = {},
                            .other_clocks = {}};
  SlowCauseFound cause() const { return find_cause(times, 1, kLost, evidence); }
};

/// The same on a GPU, whose process is in time and waits for the GPU.
struct SlowGpu : Slow {
  SlowGpu() {
    evidence.on_gpu = true;
    evidence.gpu = GpuState();
    evidence.gpu->bus_id = "00000000:1B:00.0";
    evidence.gpu->sm_clock = 1755;
    evidence.gpu->max_sm_clock = 1980;
    evidence.other_clocks = {1740, 1755};
  }
};

TEST(SlowRankCause, WithoutASignNoneIsNamed) {
  for (const SlowCauseFound& found : {Slow().cause(), SlowGpu().cause()}) {
    EXPECT_EQ(found.cause, SlowCause::kUnknown);
    EXPECT_THAT(found.text, AllOf(HasSubstr("no cause can be seen there"), HasSubstr("node-7")));
  }
}

TEST(SlowRankCause, WaitingForData) {
  Slow slow;
  slow.times[1].data = 3.5;
  EXPECT_EQ(slow.cause().cause, SlowCause::kData);
  EXPECT_THAT(slow.cause().text, AllOf(HasSubstr("35%"), HasSubstr("num_workers")));
  slow.times[1].data = 0.5;
  EXPECT_EQ(slow.cause().cause, SlowCause::kUnknown) << "which does not account for it";
}

TEST(SlowRankCause, WritingCheckpoints) {
  Slow slow;
  slow.times[1].writing = 4;
  EXPECT_EQ(slow.cause().cause, SlowCause::kWriting);
  EXPECT_THAT(slow.cause().text, HasSubstr("ckpt_interval"));
}

TEST(SlowRankCause, OthersTakeItsCores) {
  Slow slow;
  slow.evidence.cpu = {.seconds = 10, .on_core = 5, .without_core = 4.8};
  EXPECT_EQ(slow.cause().cause, SlowCause::kCores);
  EXPECT_THAT(slow.cause().text,
              AllOf(HasSubstr("48%"), HasSubstr("node-7"), HasSubstr("load 9.0 on 8 cores")));
}

TEST(SlowRankCause, SleepingOrStopped) {
  Slow slow;
  slow.evidence.cpu = {.seconds = 10, .on_core = 5, .without_core = std::nullopt};
  EXPECT_EQ(slow.cause().cause, SlowCause::kPaused);
  EXPECT_THAT(slow.cause().text, AllOf(HasSubstr("49%"), HasSubstr("SIGSTOP")));
}

TEST(SlowRankCause, MemoryThatComesBackFromDisk) {
  Slow slow;
  slow.evidence.cpu = {.seconds = 10, .on_core = 5, .without_core = 0, .pages_from_disk = 5000};
  EXPECT_EQ(slow.cause().cause, SlowCause::kPaging);
  EXPECT_THAT(slow.cause().text, HasSubstr("500 pages"));
}

TEST(SlowRankCause, AGpuWhoseClockIsHeldDown) {
  SlowGpu slow;
  slow.evidence.gpu->sm_clock = 1215;
  slow.evidence.gpu->clock_limits = {"the power limit", "the driver's temperature limit"};
  slow.evidence.gpu->power = 498;
  slow.evidence.gpu->power_limit = 500;
  slow.evidence.gpu->temperature = 91;
  EXPECT_EQ(slow.cause().cause, SlowCause::kGpuClock);
  EXPECT_THAT(
      slow.cause().text,
      AllOf(HasSubstr("1215 MHz, where the other ranks' is 1755, of at most 1980"),
            HasSubstr("held down by the power limit and the driver's temperature limit"),
            HasSubstr("(498 of 500 W, 91 °C)"), HasSubstr("PERFORMANCE"), HasSubstr("-i 00000000:1B:00.0")));
}

TEST(SlowRankCause, AClockThatIsLowEverywhereIsNoCause) {
  SlowGpu slow;
  slow.evidence.gpu->sm_clock = 1215;
  slow.evidence.gpu->clock_limits = {"the power limit"};
  slow.evidence.other_clocks = {1200, 1230};
  EXPECT_EQ(slow.cause().cause, SlowCause::kUnknown);
}

TEST(SlowRankCause, AGpuAtItsOwnMaximumIsNotHeldDown) {
  SlowGpu slow;
  slow.evidence.gpu->sm_clock = slow.evidence.gpu->max_sm_clock = 1410;
  EXPECT_EQ(slow.cause().cause, SlowCause::kUnknown);
}

TEST(SlowRankCause, WithoutTheOthersClocksALimitMustBeSeen) {
  SlowGpu slow;
  slow.evidence.other_clocks.clear();
  slow.evidence.gpu->sm_clock = 1215;
  EXPECT_EQ(slow.cause().cause, SlowCause::kUnknown);
  slow.evidence.gpu->clock_limits = {"the power limit"};
  EXPECT_EQ(slow.cause().cause, SlowCause::kGpuClock);
}

TEST(SlowRankCause, AnotherProcessOnItsGpu) {
  SlowGpu slow;
  slow.evidence.others_on_gpu = {.listed = {{1234, 61'200'000'000}}, .self_found = true};
  EXPECT_EQ(slow.cause().cause, SlowCause::kGpuShared);
  EXPECT_THAT(slow.cause().text, HasSubstr("61.2 GB by another process: pid 1234"));
}

/// Its GPU waits for it, with a low clock.
TEST(SlowRankCause, OnAGpuTheProcessMayBeWhatIsLate) {
  SlowGpu slow;
  slow.times[0].agreeing = slow.times[2].agreeing = 4;
  slow.evidence.gpu->sm_clock = 345;
  slow.evidence.cpu = {.seconds = 10, .on_core = 1, .without_core = 0};
  EXPECT_EQ(slow.cause().cause, SlowCause::kPaused);
  slow.evidence.cpu = {.seconds = 10, .on_core = 1, .without_core = 6};
  EXPECT_EQ(slow.cause().cause, SlowCause::kCores);
}

TEST(SlowRankCause, OnAGpuAProcessThatSleepsAndIsInTimeIsNoCause) {
  SlowGpu slow;
  slow.evidence.cpu = {.seconds = 10, .on_core = 1, .without_core = 6};
  EXPECT_EQ(slow.cause().cause, SlowCause::kUnknown);
}

TEST(SlowRankCause, AGpuOfWhichNothingIsKnownHasNoCause) {
  SlowGpu slow;
  slow.evidence.gpu.reset();
  EXPECT_EQ(slow.cause().cause, SlowCause::kUnknown);
}

}  // namespace
}  // namespace adtrain
