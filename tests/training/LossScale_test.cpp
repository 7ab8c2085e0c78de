#include "training/LossScale.h"

#include <limits>

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include "training/Optimizer.h"

namespace adtrain {
namespace {

TEST(LossScale, DividesGradientsByItsFactor) {
  LossScale scale(at::kCPU);
  at::Tensor gradient = at::randn({50});
  const at::Tensor expected = gradient.clone();
  gradient.mul_(scale.factor());
  scale.unscale(gradient);
  EXPECT_TRUE(at::allclose(gradient, expected));
  EXPECT_EQ(scale.overflow().item<float>(), 0);
}

TEST(LossScale, HalvesOnOverflowAndDoublesAfterTwoThousandGoodSteps) {
  LossScale scale(at::kCPU);
  const auto step = [&](float value) {
    const float factor = scale.factor().item<float>();
    scale.unscale(at::full({3}, value * factor));
    scale.update();
    return scale.factor().item<float>() / factor;
  };
  EXPECT_EQ(step(std::numeric_limits<float>::infinity()), 0.5F);
  EXPECT_EQ(step(std::numeric_limits<float>::quiet_NaN()), 0.5F);
  EXPECT_EQ(scale.skipped_steps(), 2);
  for (int good = 1; good < 2000; ++good) ASSERT_EQ(step(1), 1) << good;
  EXPECT_EQ(step(1), 2);
  EXPECT_EQ(scale.skipped_steps(), 2);
}

TEST(LossScale, IsExhaustedOnlyWhereEveryStepOverflows) {
  LossScale scale(at::kCPU);
  for (int overflow = 0; overflow < 29; ++overflow) {
    EXPECT_FALSE(scale.exhausted()) << overflow;
    scale.unscale(at::full({1}, std::numeric_limits<float>::infinity()));
    scale.update();
  }
  EXPECT_FALSE(scale.exhausted()) << "2^-13 is still tried";
  scale.unscale(at::full({1}, std::numeric_limits<float>::infinity()));
  scale.update();
  EXPECT_TRUE(scale.exhausted());
}

TEST(LossScale, ItsStateRestoresIt) {
  LossScale first(at::kCPU), second(at::kCPU);
  first.unscale(at::full({1}, std::numeric_limits<float>::infinity()));
  first.update();
  at::Tensor(second.state()).copy_(first.state());
  EXPECT_EQ(second.factor().item<float>(), first.factor().item<float>());
  EXPECT_EQ(second.skipped_steps(), 1);
}

TEST(LossScale, AnOverflowLeavesTheOptimizerAsItWas) {
  at::Tensor parameters = at::randn({20});
  Optimizer optimizer(parameters, TrainingOptions{});
  optimizer.set_learning_rate(1e-2);
  LossScale scale(at::kCPU);
  optimizer.step(at::randn({20}) * scale.factor(), &scale);
  const at::Tensor before = parameters.clone(), moment = optimizer.first_moment().clone();
  at::Tensor gradient = at::randn({20}) * scale.factor();
  gradient[7] = std::numeric_limits<float>::infinity();
  optimizer.step(gradient, &scale);
  EXPECT_TRUE(parameters.equal(before));
  EXPECT_TRUE(optimizer.first_moment().equal(moment));
  EXPECT_EQ(optimizer.step_count().item<float>(), 1);
}

}  // namespace
}  // namespace adtrain
