#include "kernels/optimizer/AdamWKernel.h"

#include <cmath>
#include <limits>
#include <optional>
#include <string>
#include <vector>

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include "base/Gpu.h"
#include "training/Optimizer.h"

namespace adtrain {
namespace {

struct KernelCase {
  int64_t size;
  at::ScalarType type;  ///< of the image; kFloat: there is none
  double weight_decay = 0.1;
  double max_grad_norm = 1;
  bool scales_loss = false;
};

std::string name_of(const KernelCase& tried) {
  std::string name = std::string(c10::toString(tried.type)) + "_" + std::to_string(tried.size);
  if (tried.weight_decay == 0) name += "_no_decay";
  if (tried.max_grad_norm == 0) name += "_no_clipping";
  if (tried.scales_loss) name += "_scaled";
  return name;
}

/// An optimizer with all that it works on.
struct Subject {
  Subject(const KernelCase& tried, const at::Tensor& initial)
      : parameters(initial.clone()),
        optimizer(parameters, options(tried)),
        scale(initial.device()),
        scales_loss(tried.scales_loss) {
    if (tried.type != at::kFloat) low_precision = parameters.to(tried.type);
  }

  static TrainingOptions options(const KernelCase& tried) {
    TrainingOptions options;
    options.weight_decay = tried.weight_decay;
    options.max_grad_norm = tried.max_grad_norm;
    return options;
  }

  /// `gradient`: on the CPU, as it is without loss scale.
  void step(const at::Tensor& gradient, double rate) {
    at::Tensor used = at::empty_like(parameters).copy_(gradient);
    if (scales_loss) used.mul_(scale.factor());
    optimizer.set_learning_rate(rate);
    optimizer.step(used, scales_loss ? &scale : nullptr, low_precision);
    if (scales_loss) scale.update();
    EXPECT_EQ(used.count_nonzero().item<int64_t>(), 0) << "the gradient is used up";
  }

  at::Tensor parameters, low_precision;
  Optimizer optimizer;
  LossScale scale;
  bool scales_loss;
};

/// What the kernels do, beside torch's operators on the CPU, in double precision: the definition of what is
/// right.
class AdamWKernel : public testing::TestWithParam<KernelCase> {
 protected:
  void SetUp() override {
    if (visible_gpu_count() == 0) GTEST_SKIP() << "no GPU here";
    const at::Tensor initial = at::randn({GetParam().size});
    expected_.emplace(GetParam(), initial.to(at::kDouble));
    found_.emplace(GetParam(), initial.to(at::Device(at::kCUDA, 0)));
  }

  void step_both(const at::Tensor& gradient, double rate) {
    expected_->step(gradient, rate);
    found_->step(gradient, rate);
  }
  /// Norms below and above that at which gradients are clipped.
  void step_both(int number) {
    const double norm = number % 2 == 0 ? 0.3 : 7.0;
    step_both(at::randn({GetParam().size}).mul_(norm / std::sqrt(static_cast<double>(GetParam().size))),
              1e-2 / (number + 1));
  }

  void expect_alike() {
    Optimizer& expected = expected_->optimizer;
    Optimizer& found = found_->optimizer;
    const auto expect_close = [](const at::Tensor& ours, const at::Tensor& theirs, const char* what) {
      const double error = (ours.to(at::kCPU, at::kDouble) - theirs).abs().max().item<double>();
      EXPECT_LE(error, 1e-6 * theirs.abs().max().item<double>()) << what;
    };
    expect_close(found_->parameters, expected_->parameters, "parameters");
    expect_close(found.first_moment(), expected.first_moment(), "first moment");
    expect_close(found.second_moment(), expected.second_moment(), "second moment");
    expect_close(found.gradient_norm(), expected.gradient_norm(), "norm");
    EXPECT_EQ(found.step_count().item<float>(), expected.step_count().item<float>());
    if (found_->low_precision.defined()) {
      EXPECT_TRUE(found_->low_precision.equal(found_->parameters.to(found_->low_precision.scalar_type())));
    }
    EXPECT_TRUE(found_->scale.state().cpu().equal(expected_->scale.state()));
  }

  std::optional<Subject> expected_, found_;
};

TEST_P(AdamWKernel, DoesWhatTheOperatorsDo) {
  for (int step = 0; step < 6; ++step) {
    step_both(step);
    expect_alike();
  }
}

TEST_P(AdamWKernel, ContinuesFromTheStateOfTheOperators) {
  expected_->step(at::randn({GetParam().size}), 1e-2);
  expected_->optimizer.step_count().fill_(1000);
  found_->parameters.copy_(expected_->parameters);
  found_->optimizer.first_moment().copy_(expected_->optimizer.first_moment());
  found_->optimizer.second_moment().copy_(expected_->optimizer.second_moment());
  found_->optimizer.step_count().copy_(expected_->optimizer.step_count());
  found_->scale.state().copy_(expected_->scale.state());
  step_both(1);
  expect_alike();
}

TEST_P(AdamWKernel, RepeatsBitForBit) {
  Subject again(GetParam(), found_->parameters);
  const at::Tensor gradient = at::randn({GetParam().size});
  for (Subject* subject : {&*found_, &again}) {
    for (int step = 0; step < 3; ++step) subject->step(gradient, 1e-2);
  }
  EXPECT_TRUE(found_->parameters.equal(again.parameters));
  EXPECT_TRUE(found_->optimizer.gradient_norm().equal(again.optimizer.gradient_norm()));
}

TEST_P(AdamWKernel, WhatIsNotFiniteIsSkippedWithLossScaleAndSpreadsWithout) {
  step_both(0);
  const at::Tensor before = found_->parameters.clone(), moment = found_->optimizer.first_moment().clone();
  for (const float bad : {std::numeric_limits<float>::infinity(), std::numeric_limits<float>::quiet_NaN()}) {
    at::Tensor gradient = at::randn({GetParam().size});
    gradient[GetParam().size - 3] = bad;
    step_both(gradient, 1e-2);
    const bool skips = GetParam().scales_loss;
    EXPECT_EQ(found_->parameters.equal(before), skips);
    EXPECT_EQ(found_->optimizer.first_moment().equal(moment), skips);
    EXPECT_TRUE(at::allclose(found_->parameters.to(at::kCPU, at::kDouble), expected_->parameters, 1e-6, 1e-6,
                             /*equal_nan=*/true));
    EXPECT_EQ(found_->optimizer.step_count().item<float>(), expected_->optimizer.step_count().item<float>());
    EXPECT_FALSE(std::isfinite(found_->optimizer.gradient_norm().item<float>()));
  }
  EXPECT_TRUE(found_->scale.state().cpu().equal(expected_->scale.state()));
  if (!GetParam().scales_loss) return;
  step_both(1);
  expect_alike();
}

std::vector<KernelCase> cases() {
  // Fewer elements than a thread block takes, some blocks with an odd end, and more than the blocks of the
  // norm take at once.
  std::vector<KernelCase> all;
  for (const int64_t size : {64, 20 * 1024 + 64, 3 * 1024 * 1024 + 192}) {
    all.push_back({.size = size, .type = at::kFloat});
    all.push_back({.size = size, .type = at::kBFloat16});
    all.push_back({.size = size, .type = at::kHalf, .scales_loss = true});
  }
  all.push_back({.size = 4096, .type = at::kBFloat16, .weight_decay = 0});
  all.push_back({.size = 4096, .type = at::kBFloat16, .max_grad_norm = 0});
  all.push_back({.size = 4096, .type = at::kHalf, .max_grad_norm = 0, .scales_loss = true});
  return all;
}

INSTANTIATE_TEST_SUITE_P(Cases, AdamWKernel, testing::ValuesIn(cases()),
                         [](const auto& tried) { return name_of(tried.param); });

}  // namespace
}  // namespace adtrain
