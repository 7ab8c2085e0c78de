#include "run/KernelReport.h"

#include <algorithm>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/Error.h"
#include "base/File.h"
#include "kernels/primitives/DeviceTraits.h"
#include "run/LoadedNetwork.h"
#include "support/TemporaryFolder.h"

namespace adtrain {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

class KernelReportOf : public ::testing::Test {
 protected:
  RunConfig config(const std::vector<std::string>& overrides) const {
    write_file(folder_.path() / "grid.yaml",
               "env: darkroom\nmixed_precision: bf16\ntf_n_embd: 256\ntf_n_head: 4\n");
    std::vector<std::string> notices;
    return RunConfig::load(folder_.path() / "grid.yaml", overrides, notices);
  }
  /// What is said of rollouts on the CPU or, `device` = 1, on a GPU.
  std::string rollout(const std::vector<std::string>& overrides, size_t device) const {
    return of_part("rollout", overrides, device);
  }
  std::string of_part(const std::string& name, const std::vector<std::string>& overrides,
                      size_t device) const {
    const KernelReport report = kernel_reports(config(overrides)).at(device);
    const auto part = std::ranges::find(report.parts, name, &kernels::KernelPlan::Part::name);
    return part->kernels + "; " + part->why;
  }

  TemporaryFolder folder_;
};

TEST_F(KernelReportOf, RolloutsSaysWhereKeysAndValuesAreKept) {
  if (kernel_reports(config({})).size() < 2) GTEST_SKIP() << "there is a GPU here, which alone is reported";
  constexpr size_t kCpu = 0, kGpu = 1;
  EXPECT_THAT(rollout({}, kCpu), Not(HasSubstr("kept")));
  EXPECT_THAT(rollout({}, kGpu),
              AllOf(HasSubstr("kept keys and values while contexts grow, by libtorch's"), HasSubstr("256")));
  EXPECT_THAT(rollout({"tf_n_embd=64"}, kGpu), HasSubstr("one kernel an episode"));
  EXPECT_THAT(rollout({"eval_context=rolling"}, kCpu), HasSubstr("one token a step over kept keys"));
  EXPECT_THAT(rollout({"eval_context=rolling"}, kGpu),
              AllOf(HasSubstr("attention by one kernel of ours, in a CUDA graph"), Not(HasSubstr("grow"))));
  const std::vector<std::string> gpt2 = {"eval_context=rolling", "model=GPT2"};
  EXPECT_THAT(rollout(gpt2, kGpu), HasSubstr("while contexts grow, attention by one kernel of ours"));
  EXPECT_THAT(rollout({"model=GPT2"}, kCpu), Not(HasSubstr("kept")));
  const std::vector<std::string> compressed = {"use_compressed_context=true", "compress_interval=30"};
  EXPECT_THAT(rollout(compressed, kGpu), Not(HasSubstr("kept")));
  const std::string map = "device_map={embeddings: 0, blocks: 1, head: 1}";
  EXPECT_THAT(rollout({map}, kGpu), AllOf(HasSubstr("in the stages of device_map"), Not(HasSubstr("kept"))));
  EXPECT_THAT(rollout({map, "eval_context=rolling"}, kGpu),
              AllOf(HasSubstr("over kept keys and values, in the stages"), Not(HasSubstr("CUDA graph"))));
}

TEST_F(KernelReportOf, WhatSettingsForbidIsNotClaimed) {
  if (kernel_reports(config({})).size() < 2) GTEST_SKIP() << "there is a GPU here, which alone is reported";
  constexpr size_t kGpu = 1;
  const std::vector<std::string> last = {"borrowed_episodes=0.5", "loss_positions=last", "n_transit=100"},
                                 all = {"borrowed_episodes=0.5", "loss_positions=all", "n_transit=100"},
                                 none = {"loss_positions=all", "n_transit=100"};
  EXPECT_THAT(of_part("loss", none, kGpu), HasSubstr("ours"));
  EXPECT_THAT(of_part("loss", none, kGpu), Not(HasSubstr("borrowed")));
  EXPECT_EQ(of_part("loss", last, kGpu), of_part("loss", {"loss_positions=last", "n_transit=100"}, kGpu));
  EXPECT_THAT(of_part("loss", all, kGpu), HasSubstr("libtorch's operators; ours has all actions as targets"));
  const std::vector<std::string> outliers = {"eval_context=rolling", "load_in_8bit=true",
                                             "llm_int8_threshold=6", "transformer_block=vintix"};
  EXPECT_THAT(rollout(outliers, kGpu), AllOf(HasSubstr("CUDA graph"), Not(HasSubstr("outliers"))));
  EXPECT_THAT(of_part("products", outliers, kGpu), HasSubstr("outliers apart, by kernels of ours"));
  EXPECT_THAT(of_part("products", outliers, 0), HasSubstr("outliers apart, by libtorch's operators; ours"));
  constexpr auto kHopper = kernels::DeviceTraits::hopper();
  constexpr kernels::DeviceTraits kAmpere = {true, 80, 163 * 1024};
  const RunConfig with_outliers = config(outliers);
  EXPECT_TRUE(can_be_captured(with_outliers, kHopper, at::kBFloat16));
  EXPECT_FALSE(can_be_captured(with_outliers, kHopper, at::kFloat));
  EXPECT_FALSE(can_be_captured(with_outliers, kAmpere, at::kBFloat16));
  EXPECT_TRUE(can_be_captured(config({}), kAmpere, at::kFloat));
}

TEST_F(KernelReportOf, NetworksThatKeepNoKeysAreNotAskedTo) {
  try {
    config({"eval_context=rolling", "use_compressed_context=true"});
    FAIL() << "compressed context cannot";
  } catch (const ConfigError& error) {
    EXPECT_THAT(error.what(), AllOf(HasSubstr("eval_context"), HasSubstr("compressed context"),
                                    HasSubstr("expected recompute")));
  }
}

}  // namespace
}  // namespace adtrain
