#include <cmath>

#include <gtest/gtest.h>

#include "SmallRun.h"
#include "base/Gpu.h"

namespace adtrain {
namespace {

/// Histories in which there is something to learn.
constexpr const char* kLearning =
    "total_source_timesteps=16000 --set train_source_timesteps=1600 --set n_epochs=20 --set source_lr=0.001";

/// Mean loss of every ten steps of 500, on histories that were collected.
std::vector<double> losses(const SmallRun& small, const std::string& precision) {
  const Finished trained = small.adtrain(
      "small.yaml --overwrite --set device=cuda --set train_timesteps=500 --set summary_interval=10 --set "
      "eval_interval=0 --set ckpt_interval=500 --set episode_stride=5 --set " +
      std::string(kLearning) + " --set " + precision);
  EXPECT_EQ(trained.exit_code, 0) << trained.output;
  std::vector<double> values;
  for (const auto& record : small.metrics("small", "loss")) values.push_back(record["loss"].get<double>());
  return values;
}

TEST(Precision, LossCurvesOfAllPrecisionsAgreeOver500Steps) {
  if (visible_gpu_count() == 0) GTEST_SKIP() << "no GPU here";
  const SmallRun small;
  ASSERT_EQ(small.adtrain("collect small.yaml --set " + std::string(kLearning)).exit_code, 0);
  const std::vector<double> exact = losses(small, "mixed_precision=no --set tf32=false");
  ASSERT_EQ(exact.size(), 50U);
  EXPECT_LT(exact.back(), 0.8 * exact.front()) << "nothing was learnt: the curves say little";
  for (const auto& [precision, tolerance] : std::vector<std::pair<std::string, double>>{
           {"mixed_precision=no --set tf32=true", 0.005},
           {"mixed_precision=bf16", 0.02},
           {"mixed_precision=fp16", 0.005},
           {"mixed_precision=no --set tf32=false --set cuda_graph=off", 0.002}}) {
    const std::vector<double> found = losses(small, precision);
    ASSERT_EQ(found.size(), exact.size());
    double largest = 0;
    for (size_t i = 0; i < exact.size(); ++i) {
      largest = std::max(largest, std::abs(found[i] - exact[i]) / exact[i]);
    }
    RecordProperty(precision, std::to_string(largest));
    EXPECT_LT(largest, tolerance) << precision;
  }
}

}  // namespace
}  // namespace adtrain
