#include <algorithm>
#include <cmath>
#include <numeric>

#include <fmt/format.h>
#include <gtest/gtest.h>

#include "SmallRun.h"
#include "base/Gpu.h"

namespace adtrain {
namespace {

/// Histories in which there is something to learn.
constexpr const char* kLearning =
    "total_source_timesteps=16000 --set train_source_timesteps=1600 --set n_epochs=20 --set source_lr=0.001";

/// Mean loss of every fiftieth part of so many steps, on histories that were collected.
std::vector<double> losses(const SmallRun& small, int steps, const std::string& settings) {
  const Finished trained = small.adtrain(fmt::format(
      "small.yaml --overwrite --set device=cuda --set train_timesteps={0} --set summary_interval={1} "
      "--set eval_interval=0 --set ckpt_interval={0} --set episode_stride=5 --set {2} --set {3}",
      steps, steps / 50, kLearning, settings));
  EXPECT_EQ(trained.exit_code, 0) << trained.output;
  std::vector<double> values;
  for (const auto& record : small.metrics("small", "loss")) values.push_back(record["loss"].get<double>());
  return values;
}

TEST(Precision, LossCurvesOfAllPrecisionsAgreeOver500Steps) {
  if (visible_gpu_count() == 0) GTEST_SKIP() << "no GPU here";
  const SmallRun small;
  ASSERT_EQ(small.adtrain("collect small.yaml --set " + std::string(kLearning)).exit_code, 0);
  const std::vector<double> exact = losses(small, 500, "mixed_precision=no --set tf32=false");
  ASSERT_EQ(exact.size(), 50U);
  EXPECT_LT(exact.back(), 0.8 * exact.front()) << "nothing was learnt: the curves say little";
  for (const auto& [precision, tolerance] : std::vector<std::pair<std::string, double>>{
           {"mixed_precision=no --set tf32=true", 0.005},
           {"mixed_precision=bf16", 0.02},
           {"mixed_precision=fp16", 0.005},
           {"mixed_precision=no --set tf32=false --set cuda_graph=off", 0.002}}) {
    const std::vector<double> found = losses(small, 500, precision);
    ASSERT_EQ(found.size(), exact.size());
    double largest = 0;
    for (size_t i = 0; i < exact.size(); ++i) {
      largest = std::max(largest, std::abs(found[i] - exact[i]) / exact[i]);
    }
    RecordProperty(precision, std::to_string(largest));
    EXPECT_LT(largest, tolerance) << precision;
  }
}

double mean_of_last_quarter(const std::vector<double>& losses) {
  const auto quarter = static_cast<std::ptrdiff_t>(losses.size() / 4);
  return std::accumulate(losses.end() - quarter, losses.end(), 0.0) / static_cast<double>(quarter);
}

/// A network by fused and by library kernels; dropout draws other elements in the two, so with it only the
/// level is the same.
void expect_alike(const SmallRun& small, const std::string& network, const std::string& dropout,
                  double everywhere, double in_the_end) {
  SCOPED_TRACE(network + ", dropout " + dropout);
  const std::string rates = " --set tf_dropout=" + dropout + " --set tf_attn_dropout=" + dropout;
  const std::vector<double> library = losses(small, 2000, network + "off" + rates);
  const std::vector<double> fused = losses(small, 2000, network + "on" + rates);
  ASSERT_EQ(fused.size(), library.size());
  EXPECT_LT(library.back(), 0.8 * library.front()) << "nothing was learnt: the curves say little";
  double largest = 0;
  for (size_t i = 0; i < fused.size(); ++i) {
    largest = std::max(largest, std::abs(fused[i] - library[i]) / library[i]);
  }
  const double at_the_end = std::abs(mean_of_last_quarter(fused) / mean_of_last_quarter(library) - 1);
  ::testing::Test::RecordProperty(
      "dropout " + dropout, fmt::format("largest {:.4f}, last quarter {:.4f}, final loss {:.4f}", largest,
                                        at_the_end, fused.back()));
  EXPECT_LT(largest, everywhere);
  EXPECT_LT(at_the_end, in_the_end);
}

class PrecisionOfFusedKernels : public ::testing::TestWithParam<const char*> {};

TEST_P(PrecisionOfFusedKernels, LossCurvesAgreeWithLibraryKernelsOver2000Steps) {
  if (visible_gpu_count() == 0) GTEST_SKIP() << "no GPU here";
  const SmallRun small;
  ASSERT_EQ(small.adtrain("collect small.yaml --set " + std::string(kLearning)).exit_code, 0);
  const std::string network = fmt::format(
      "mixed_precision=bf16 --set transformer_block={} --set tf_n_embd=32 --set tf_n_head=4 --set "
      "tf_n_inner=null --set global_batch_size=256 --set fused_kernels=",
      GetParam());
  expect_alike(small, network, "0", 0.03, 0.01);
  expect_alike(small, network, "0.1", 0.12, 0.03);
}

INSTANTIATE_TEST_SUITE_P(Blocks, PrecisionOfFusedKernels,
                         ::testing::Values("post_norm --set loss_positions=last",
                                           "pre_norm --set loss_positions=all"),
                         [](const auto& network) {
                           const std::string settings = network.param;
                           return settings.substr(0, settings.find(' '));
                         });

}  // namespace
}  // namespace adtrain
