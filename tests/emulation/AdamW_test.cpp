#include <limits>
#include <string>
#include <vector>

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include "collectives/Part.h"
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
    take_adamw_step(kRule, part({0, parameters.numel()}, gradient, rate, factor), nullptr);
  }

  /// The same in parts, as the ranks of a sharded optimizer take it together.
  void step_in_parts(const std::vector<Part>& parts, const at::Tensor& gradient, float rate,
                     const float* factor) {
    memory.found[0] = memory.found[1] = 0;
    for (const Part& each : parts) measure_adamw_part(kRule, part(each, gradient, rate, factor), nullptr);
    decide_adamw_step(kRule, part(parts.front(), gradient, rate, factor), nullptr);
    for (const Part& each : parts) update_adamw_part(kRule, part(each, gradient, rate, factor), nullptr);
  }

  AdamWStep part(const Part& part, const at::Tensor& gradient, const float& rate, const float* factor) {
    return {.size = part.size,
            .gradient = gradient.data_ptr<float>() + part.begin,
            .parameters = parameters.data_ptr<float>() + part.begin,
            .first_moment = first.data_ptr<float>() + part.begin,
            .second_moment = second.data_ptr<float>() + part.begin,
            .low_precision = static_cast<char*>(low_precision.data_ptr()) +
                             part.begin * static_cast<int64_t>(low_precision.element_size()),
            .low_precision_type = type,
            .learning_rate = &rate,
            .step_count = &count,
            .gradient_norm = &norm,
            .loss_factor = factor,
            .overflow = &overflow,
            .memory = &memory};
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

TEST(EmulatedAdamW, AStepInPartsIsTheSame) {
  const int64_t size = 3 * 1024 + 128;
  const std::vector<Part> parts = {{2048, size - 2048}, {0, 0}, {64, 1984}, {0, 64}};
  for (const at::ScalarType type : {at::kFloat, at::kBFloat16, at::kHalf}) {
    SCOPED_TRACE(c10::toString(type));
    const at::Tensor initial = at::randn({size});
    Emulated whole(initial, type), in_parts(initial, type);
    const float scale = 1024, *const factor = type == at::kHalf ? &scale : nullptr;
    for (int step = 0; step < 4; ++step) {
      at::Tensor gradient = at::randn({size}) * (step % 2 == 0 ? 1e-3 : 1.0);
      if (step == 3) gradient[70] = std::numeric_limits<float>::quiet_NaN();
      at::Tensor used = gradient.clone(), also_used = gradient.clone();
      const at::Tensor before = in_parts.parameters.clone();
      whole.step(used, 1e-2f, factor);
      in_parts.step_in_parts(parts, also_used, 1e-2f, factor);
      EXPECT_EQ(also_used.count_nonzero().item<int64_t>(), 0);
      EXPECT_TRUE(at::allclose(in_parts.parameters, whole.parameters, 1e-6, 1e-6, /*equal_nan=*/true));
      EXPECT_TRUE(at::allclose(in_parts.second, whole.second, 1e-6, 1e-9, /*equal_nan=*/true));
      EXPECT_EQ(in_parts.count, whole.count);
      EXPECT_EQ(in_parts.overflow, whole.overflow);
      if (step < 3) {
        EXPECT_NEAR(in_parts.norm, whole.norm, 1e-5 * whole.norm);
      } else {
        EXPECT_EQ(at::equal(in_parts.parameters, before), factor != nullptr) << "a scaled step is skipped";
      }
      if (type != at::kFloat && step < 3) {
        EXPECT_TRUE(in_parts.low_precision.equal(in_parts.parameters.to(type)));
      }
    }
  }
}

}  // namespace
}  // namespace adtrain
