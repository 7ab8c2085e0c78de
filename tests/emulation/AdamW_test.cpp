#include <limits>
#include <string>
#include <vector>

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include "kernels/optimizer/AdamWKernel.h"
#include "training/Optimizer.h"

namespace adtrain {
namespace {

constexpr AdamWRule kRule = {
    .beta1 = 0.9, .beta2 = 0.99, .epsilon = 1e-8, .weight_decay = 0.1, .max_grad_norm = 1};

/// What the kernels work on.
struct Emulated {
  Emulated(const at::Tensor& initial, at::ScalarType low_precision_type)
      : parameters(initial.clone()),
        first(at::zeros_like(initial)),
        second(at::zeros_like(initial)),
        low_precision(at::zeros(initial.sizes(), low_precision_type)),
        type(low_precision_type == at::kHalf       ? LowPrecisionType::kHalf
             : low_precision_type == at::kBFloat16 ? LowPrecisionType::kBFloat16
                                                   : LowPrecisionType::kNone) {}

  /// Uses up the gradient, which was multiplied with `factor` if there is one.
  void step(const at::Tensor& gradient, float rate, const float* factor) {
    take_adamw_step(kRule,
                    {.size = parameters.numel(),
                     .gradient = gradient.data_ptr<float>(),
                     .parameters = parameters.data_ptr<float>(),
                     .first_moment = first.data_ptr<float>(),
                     .second_moment = second.data_ptr<float>(),
                     .low_precision = low_precision.data_ptr(),
                     .low_precision_type = type,
                     .learning_rate = &rate,
                     .step_count = &count,
                     .gradient_norm = &norm,
                     .loss_factor = factor,
                     .overflow = &overflow,
                     .memory = &memory},
                    nullptr);
  }

  at::Tensor parameters, first, second, low_precision;
  LowPrecisionType type;
  float count = 0, norm = 0, overflow = 0;
  AdamWMemory memory = {};
};

double error_of(const at::Tensor& found, const at::Tensor& expected) {
  return ((found.to(at::kDouble) - expected).abs().max() / expected.abs().max()).item<double>();
}

/// The plain operators in double precision are the definition of what is right.
TEST(EmulatedAdamW, DoesWhatTheOperatorsDo) {
  at::manual_seed(1);
  for (const int64_t size : {64, 3 * 1024 + 64}) {
    for (const at::ScalarType type : {at::kFloat, at::kBFloat16, at::kHalf}) {
      SCOPED_TRACE(std::to_string(size) + " " + c10::toString(type));
      const at::Tensor initial = at::randn({size});
      Emulated found(initial, type);
      TrainingOptions options;
      options.weight_decay = kRule.weight_decay;
      options.max_grad_norm = kRule.max_grad_norm;
      options.beta1 = kRule.beta1;
      options.beta2 = kRule.beta2;
      options.adam_epsilon = kRule.epsilon;
      at::Tensor parameters = initial.to(at::kDouble);
      Optimizer expected(parameters, options);
      const float factor = 1024;
      const bool scaled = type == at::kHalf;
      for (int step = 0; step < 3; ++step) {
        const double norm = step % 2 == 0 ? 0.3 : 7.0, rate = 1e-2 / (step + 1);
        const at::Tensor gradient = at::randn({size}).mul_(norm / std::sqrt(static_cast<double>(size)));
        expected.set_learning_rate(rate);
        expected.step(gradient.to(at::kDouble));
        at::Tensor used = scaled ? gradient * factor : gradient.clone();
        found.step(used, static_cast<float>(rate), scaled ? &factor : nullptr);
        EXPECT_EQ(used.count_nonzero().item<int64_t>(), 0) << "the gradient is used up";
        EXPECT_LT(error_of(found.parameters, parameters), 1e-6);
        EXPECT_LT(error_of(found.first, expected.first_moment()), 1e-6);
        EXPECT_LT(error_of(found.second, expected.second_moment()), 1e-6);
        EXPECT_NEAR(found.norm, expected.gradient_norm().item<double>(), 1e-5 * norm);
        EXPECT_EQ(found.count, static_cast<float>(step + 1));
        if (type != at::kFloat) {
          EXPECT_TRUE(found.low_precision.equal(found.parameters.to(type)));
        }
      }
      if (!scaled) continue;
      const at::Tensor before = found.parameters.clone();
      at::Tensor bad = at::randn({size});
      bad[size - 3] = std::numeric_limits<float>::infinity();
      found.step(bad, 1e-2f, &factor);
      EXPECT_TRUE(found.parameters.equal(before)) << "a gradient that overflows is skipped";
      EXPECT_EQ(found.overflow, 1.0f);
      EXPECT_EQ(found.count, 3.0f);
      EXPECT_EQ(bad.count_nonzero().item<int64_t>(), 0);
    }
  }
}

}  // namespace
}  // namespace adtrain
