#include "base/Nvml.h"

#include <iostream>
#include <utility>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include "base/Gpu.h"

namespace adtrain {
namespace {

using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::SizeIs;

GpuState with_processes(std::vector<GpuProcess> processes) {
  GpuState state;
  state.processes = std::move(processes);
  return state;
}

TEST(Nvml, WithoutTheLibraryNothingIsKnownAndNothingIsAnError) {
  const Nvml absent("libno-such-library.so.1");
  EXPECT_FALSE(absent.known());
  EXPECT_EQ(absent.visible_gpu(0), std::nullopt);
  EXPECT_EQ(absent.gpu_at("00000000:1B:00.0"), std::nullopt);
}

TEST(Nvml, ALibraryWithoutItsFunctionsCountsAsNone) {
  EXPECT_FALSE(Nvml("libz.so.1").known());
}

TEST(Nvml, ReadsWhatTheLibraryReports) {
  const Nvml nvml(STAND_IN_NVML);
  ASSERT_TRUE(nvml.known());
  EXPECT_EQ(nvml.gpu_at("00000000:FF:00.0"), std::nullopt) << "there is no such GPU";
  const auto state = nvml.gpu_at("00000000:1B:00.0");
  ASSERT_TRUE(state);
  EXPECT_EQ(state->sm_clock, 1215);
  EXPECT_EQ(state->max_sm_clock, 1980);
  EXPECT_THAT(state->clock_limits, ElementsAre("the power limit", "the hardware's protection from heat"));
  EXPECT_DOUBLE_EQ(state->power.value(), 498.5);
  EXPECT_DOUBLE_EQ(state->power_limit.value(), 500);
  EXPECT_EQ(state->temperature, std::nullopt) << "the library does not tell";
  EXPECT_EQ(state->memory_in_use, 70'000);
  EXPECT_EQ(state->memory_total, 100'000);
  ASSERT_THAT(state->processes.value(), SizeIs(100));
  EXPECT_EQ(state->processes->at(1), (GpuProcess{1001, std::nullopt}));
  EXPECT_EQ(state->processes->at(99), (GpuProcess{1099, 99'000}));
}

TEST(Nvml, OtherProcessesAreThoseBesideTheOneThatAsks) {
  const auto alone = other_processes(with_processes({{7, 5}}), 7);
  EXPECT_TRUE(alone.self_found);
  EXPECT_EQ(alone.count(), 0);
  EXPECT_EQ(alone.text(), "");

  const auto one = other_processes(with_processes({{7, 5}, {1234, 61'200'000'000}}), 7);
  EXPECT_THAT(one.listed, ElementsAre(GpuProcess{1234, 61'200'000'000}));
  EXPECT_EQ(one.text(), "61.2 GB by another process: pid 1234");
  EXPECT_EQ(other_processes(with_processes({{7, 5}, {8, std::nullopt}}), 7).text(), "another process: pid 8");
  EXPECT_EQ(other_processes(with_processes({{7, 5}, {8, 1'000'000'000}, {9, std::nullopt}}), 7).text(),
            "2 other processes: pid 8 (1.0 GB), pid 9");
}

TEST(Nvml, WhereIdsAreOfAnotherNamespaceOneOfTheListedIsTheOneThatAsks) {
  const auto alone = other_processes(with_processes({{40'000, 5}}), 7);
  EXPECT_FALSE(alone.self_found);
  EXPECT_EQ(alone.count(), 0);
  EXPECT_EQ(alone.text(), "");

  const auto two = other_processes(with_processes({{40'000, 5'000'000'000}, {40'001, 1'000'000'000}}), 7);
  EXPECT_EQ(two.count(), 1);
  EXPECT_THAT(two.text(), AllOf(HasSubstr("2 processes, this one among them"), HasSubstr("another namespace"),
                                HasSubstr("pid 40000 (5.0 GB), pid 40001 (1.0 GB)")));
}

TEST(Nvml, WhereTheDriverDoesNotTellNoProcessIsKnown) {
  const auto others = other_processes(GpuState(), 7);
  EXPECT_THAT(others.listed, IsEmpty());
  EXPECT_EQ(others.count(), 0);
  EXPECT_EQ(others.text(), "");
}

TEST(Nvml, KnowsTheGpusThatCudaSeesGpu) {
  if (visible_gpu_count() == 0) GTEST_SKIP() << "no GPU";
  const Nvml nvml;
  ASSERT_TRUE(nvml.known());
  const Gpu gpu = visible_gpu(0);  // which makes this process one of those that compute there
  const auto state = nvml.visible_gpu(0);
  ASSERT_TRUE(state);
  EXPECT_THAT(state->bus_id, HasSubstr(":"));
  EXPECT_GT(state->sm_clock.value(), 0);
  EXPECT_GE(state->max_sm_clock.value(), state->sm_clock.value());
  EXPECT_GT(state->power_limit.value(), 0);
  EXPECT_GT(state->temperature.value(), 0);
  EXPECT_GT(state->memory_in_use.value(), 0);
  EXPECT_GE(state->memory_total.value(), gpu.memory_bytes);
  std::cout << "processes on it: " << (state->processes ? state->processes->size() : 0)
            << "; others: " << other_processes(*state, getpid()).text() << "\n";
  EXPECT_EQ(nvml.visible_gpu(visible_gpu_count()), std::nullopt) << "there is no such GPU";
}

}  // namespace
}  // namespace adtrain
