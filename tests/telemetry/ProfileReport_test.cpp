#include "telemetry/profile/ProfileReport.h"

#include <sstream>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "telemetry/profile/KernelName.h"

namespace adtrain {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::Not;

constexpr int64_t kMillisecond = 1'000'000;

std::vector<std::string> lines_of(const std::string& text) {
  std::vector<std::string> lines;
  std::istringstream rest(text);
  for (std::string line; std::getline(rest, line);) lines.push_back(line);
  return lines;
}

/// Two steps of 10 ms on a GPU.
ProfileEvents two_steps_on_a_gpu() {
  ProfileEvents recorded;
  recorded.names = {"void at::native::fill<float>(float*, int)", "ncclDevKernel_AllReduce(Args<4096ul>)",
                    "Memcpy DtoD (Device -> Device)", "aten::add"};
  for (int64_t step = 0; step < 2; ++step) {
    const int64_t begin = step * 10 * kMillisecond;
    const auto add = [&](size_t name, EventKind kind, int64_t from, int64_t to) {
      recorded.events.push_back({.start_ns = begin + from * kMillisecond,
                                 .duration_ns = (to - from) * kMillisecond,
                                 .name = name,
                                 .kind = kind,
                                 .on_device = kind != EventKind::kOperator,
                                 .row = 1});
    };
    add(0, EventKind::kKernel, 0, 5);
    add(1, EventKind::kCollective, 4, 8);
    add(2, EventKind::kCopy, 8, 9);
    add(3, EventKind::kOperator, 0, 9);
  }
  return recorded;
}

RankProfile profile_of(const ProfileEvents& recorded, int64_t rank) {
  RankProfile profile;
  profile.rank = rank;
  profile.host = "node3";
  profile.device = "NVIDIA H200";
  profile.on_gpu = true;
  profile.steps =
      windows_of(recorded, {{.step = 7, .start_ns = 0, .end_ns = 10 * kMillisecond},
                            {.step = 8, .start_ns = 10 * kMillisecond, .end_ns = 20 * kMillisecond}});
  profile.wall_seconds = 0.02;
  profile.table = operator_table(recorded, profile.steps);
  profile.events = static_cast<int64_t>(recorded.events.size());
  return profile;
}

TEST(OperatorTable, IsSortedByTheTimeOnTheDevice) {
  const ProfileEvents recorded = two_steps_on_a_gpu();
  const RankProfile profile = profile_of(recorded, 0);
  ASSERT_EQ(profile.table.size(), 3U);  // without the host's operator
  EXPECT_EQ(profile.table[0].name, recorded.names[0]);
  EXPECT_EQ(profile.table[0].calls, 2);
  EXPECT_EQ(profile.table[0].total_ns, 10 * kMillisecond);
  EXPECT_EQ(profile.table[1].total_ns, 8 * kMillisecond);
  EXPECT_EQ(profile.table[2].total_ns, 2 * kMillisecond);
}

TEST(OperatorTable, LeavesOutWhatRanBetweenSteps) {
  const ProfileEvents recorded = two_steps_on_a_gpu();
  const auto windows = windows_of(
      recorded, {{.step = 7, .start_ns = 0, .end_ns = 10 * kMillisecond},
                 {.step = std::nullopt, .start_ns = 10 * kMillisecond, .end_ns = 20 * kMillisecond}});
  EXPECT_EQ(operator_table(recorded, windows).front().calls, 1);
}

/// An operator's time is without that of the operators it calls, on its own thread.
TEST(OperatorTable, OfTheCpuCountsEachInstantOnce) {
  ProfileEvents recorded;
  recorded.names = {"backward", "mm", "other"};
  const auto add = [&](size_t name, int64_t start, int64_t duration, int64_t thread) {
    recorded.events.push_back({.start_ns = start, .duration_ns = duration, .name = name, .row = thread});
  };
  add(1, 60, 40, 1);  // the order in which they come is that of their ends
  add(1, 10, 20, 1);
  add(0, 0, 100, 1);
  add(2, 10, 50, 2);
  const auto windows = windows_of(recorded, {{.step = 1, .start_ns = 0, .end_ns = 100}});
  const std::vector<OperatorRow> table = operator_table(recorded, windows);
  ASSERT_EQ(table.size(), 3U);
  EXPECT_EQ(table[0].name, "mm");
  EXPECT_EQ(table[0].total_ns, 60);
  EXPECT_EQ(table[1].total_ns, 50);
  EXPECT_EQ(table[2].name, "backward");
  EXPECT_EQ(table[2].total_ns, 40);
}

TEST(ProfileReport, ShowsTableAndPartsOfEachRank) {
  const ProfileEvents recorded = two_steps_on_a_gpu();
  const std::string text = profile_text({profile_of(recorded, 0), profile_of(recorded, 3)}, 2, 40);
  const std::vector<std::string> lines = lines_of(text);
  ASSERT_EQ(lines.size(), 9U) << text;
  EXPECT_EQ(lines[0], "profile of steps 7-8: rank 0 (node3, NVIDIA H200), what ran on the GPU");
  EXPECT_EQ(lines[1], "Name                        Calls  Device total  Device %       Average");
  EXPECT_EQ(lines[2], "fill<float>                     2     10.000 ms     50.0%      5.000 ms");
  EXPECT_EQ(lines[3], "ncclDevKernel_AllReduce         2      8.000 ms     40.0%      4.000 ms");
  EXPECT_THAT(lines[4], HasSubstr("1 more"));
  EXPECT_THAT(lines[4], HasSubstr("10.0%"));
  EXPECT_EQ(
      lines[7],
      "   0    10.000 ms      40.0%       10.0%          30.0%    10.0%  10.0%                     25.0%");
  EXPECT_EQ(lines[8].substr(4), lines[7].substr(4));
  EXPECT_EQ(lines[8].substr(0, 4), "   3");
}

TEST(ProfileReport, SaysWhatTheTraceLacks) {
  RankProfile profile = profile_of(two_steps_on_a_gpu(), 0);
  EXPECT_THAT(profile_text({profile}, 9, 40), Not(HasSubstr("lacks")));
  profile.left_out = 12;
  EXPECT_THAT(profile_text({profile}, 9, 40), HasSubstr("lacks the 12 shortest events of 1 rank"));
}

TEST(RankProfile, ComesBackFromJson) {
  RankProfile profile = profile_of(two_steps_on_a_gpu(), 5);
  profile.left_out = 3;
  profile.between_seconds = 0.5;
  const nlohmann::ordered_json json = profile.to_json();
  EXPECT_EQ(RankProfile::from(nlohmann::ordered_json::parse(json.dump())).to_json(), json);
  EXPECT_EQ(json["step_seconds"], 0.01);
  EXPECT_EQ(json["overlapped_share_of_communication"], 0.25);
}

TEST(KernelName, IsWithoutWhatEveryKernelHas) {
  EXPECT_EQ(kernel_name("void at::native::(anonymous namespace)::vectorized_elementwise_kernel<4, "
                        "at::native::FillFunctor<float>, std::array<char*, 1ul> >(int, float)",
                        100),
            "vectorized_elementwise_kernel<4, FillFunctor<float>, array<char*, 1ul> >");
  EXPECT_EQ(kernel_name("void gpu_kernel<at::native::copy(at::TensorIteratorBase&)::{lambda()#1}>(int)", 100),
            "gpu_kernel<copy(at::TensorIteratorBase&)::{lambda()#1}>");
  EXPECT_EQ(kernel_name("Memcpy HtoD (Pinned -> Device)", 100), "Memcpy HtoD (Pinned -> Device)");
  EXPECT_EQ(kernel_name("sm90_xmma_gemm_bf16bf16", 10), "sm90_xmma…");
  EXPECT_EQ(kernel_name("aten::add_", 100), "aten::add_");
}

TEST(KernelName, IsCutBetweenCharacters) {
  EXPECT_EQ(cut_to("äöü", 6), "äöü");
  EXPECT_EQ(cut_to("äöü", 5), "äö…");
  EXPECT_EQ(cut_to("äöü", 4), "ä…");
}

}  // namespace
}  // namespace adtrain
