// Networks over grids of symbols whose encoder is kernels of our own, on a GPU or emulated.

#include <ATen/ATen.h>
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "collectives/SingleCommunicator.h"
#include "kernels/FusedDevice.h"
#include "kernels/KernelSpeed.h"
#include "model/AnySpaceBatch.h"
#include "model/NetworkPlan.h"
#include "model/RandomBatch.h"
#include "model/spaces/ObservationEncoder.h"
#include "parallel/GradientReducer.h"

namespace adtrain {
namespace {

using testing::SpaceVariant;

constexpr int64_t kSteps = 9, kRows = 4;

class FusedEncoder : public ::testing::TestWithParam<std::string> {
 protected:
  void SetUp() override {
    if (!testing::fused_device()) GTEST_SKIP() << "no GPU here";
  }

  static SpaceVariant variant(FusedKernels fused) {
    for (SpaceVariant& each : testing::space_variants()) {
      if (each.name != GetParam()) continue;
      each.options.tf_n_embd = 64;
      each.options.fused_kernels = fused;
      return each;
    }
    throw std::runtime_error("no variant " + GetParam());
  }
  static std::unique_ptr<AlgorithmDistillation> on_device(FusedKernels fused, at::ScalarType type) {
    auto model = testing::small_model(variant(fused));
    model->parameters().to(testing::fused_device()->device, type);
    return model;
  }
};

TEST_P(FusedEncoder, LossAndGradientsAreThoseOfThePlainOperators) {
  const auto exact = testing::small_model(variant(FusedKernels::kOff));
  const Batch batch = testing::random_rows(variant(FusedKernels::kOff), kRows, kSteps);
  const auto expected = exact->loss(batch, LossPositions::kAll, false);
  const at::Tensor gradient = testing::flat_gradient(*exact, expected.sum);
  for (const at::ScalarType type : {at::kBFloat16, at::kHalf}) {
    SCOPED_TRACE(c10::toString(type));
    const auto error_of = [&](FusedKernels fused) {
      const auto model = on_device(fused, type);
      EXPECT_EQ(model->plan(LossPositions::kAll).fused_encoder(), fused != FusedKernels::kOff);
      const auto found = model->loss(batch.to(testing::fused_device()->device), LossPositions::kAll, false);
      EXPECT_LT(testing::relative_error(found.sum.cpu(), expected.sum), 2e-2);
      const at::Tensor error = testing::flat_gradient(*model, found.sum).cpu() - gradient;
      return (error.norm() / gradient.norm()).item<double>();
    };
    EXPECT_LT(error_of(FusedKernels::kAuto), 1.5 * error_of(FusedKernels::kOff));
  }
}

TEST_P(FusedEncoder, AReducerGetsTheGradientsThatAutogradWouldHaveGot) {
  const auto model = on_device(FusedKernels::kAuto, at::kBFloat16);
  const Batch batch =
      testing::random_rows(variant(FusedKernels::kAuto), kRows, kSteps).to(testing::fused_device()->device);
  const at::Tensor expected =
      testing::flat_gradient(*model, model->loss(batch, LossPositions::kAll, false).sum).to(at::kFloat);
  SingleCommunicator alone(testing::fused_device()->device);
  GradientReducer reducer(model->parameters().leaves(), alone, {});
  model->send_gradients_to(&reducer);
  for (int micro_step = 1; micro_step <= 2; ++micro_step) {  // they add up
    reducer.begin_micro_step(true);
    model->loss(batch, LossPositions::kAll, false).sum.backward();
    EXPECT_LT(testing::relative_error(reducer.flat_gradient(), micro_step * expected), 5e-3);
  }
  reducer.finish();
}

TEST_P(FusedEncoder, PredictsRowsThatGrow) {
  const auto model = on_device(FusedKernels::kAuto, at::kBFloat16);
  const Batch batch =
      testing::random_rows(variant(FusedKernels::kAuto), kRows, kSteps).to(testing::fused_device()->device);
  const auto rolling = model->rolling();
  for (int64_t step = 0; step < kSteps; ++step) {
    const at::Tensor found = rolling(testing::window(batch, step, 1)).actions;
    EXPECT_LT(testing::relative_error(found, model->predict(testing::window(batch, 0, step + 1)).actions),
              5e-2);
  }
}

TEST_P(FusedEncoder, IsPartOfThePlan) {
  const auto part_of = [](FusedKernels fused, at::ScalarType type) {
    for (const auto& part : on_device(fused, type)->plan(LossPositions::kAll).parts()) {
      if (part.name == "observation encoder") return part.kernels + "; " + part.why;
    }
    return std::string();
  };
  EXPECT_THAT(part_of(FusedKernels::kAuto, at::kBFloat16), ::testing::HasSubstr("ours"));
  EXPECT_THAT(part_of(FusedKernels::kAuto, at::kFloat), ::testing::HasSubstr("bf16 or fp16"));
  EXPECT_THAT(part_of(FusedKernels::kOff, at::kBFloat16), ::testing::HasSubstr("fused_kernels is off"));
}

/// Of the encoder alone, at the tokens of a step of XLand-100B's baseline, beside the plain operators. For
/// people.
TEST(FusedEncoderSpeed, DISABLED_Microseconds) {
  const auto device = testing::fused_device();
  if (!device || device->device.is_cpu()) GTEST_SKIP() << "no GPU here";
  constexpr int64_t kSequences = 64, kTokens = 4096, kFeatures = 64;
  const TaskSpaces spaces = testing::xland_spaces();
  const SpaceVariant xland = testing::space_variant("", TransformerBlock::kXland, spaces);
  Batch batch;
  batch.states = testing::random_of(spaces.observation, {kSequences, kTokens}).to(device->device);
  for (const at::ScalarType type : {at::kBFloat16, at::kHalf}) {
    for (const FusedKernels fused : {FusedKernels::kAuto, FusedKernels::kOff}) {
      ParameterFactory factory(3);
      const auto encoder = ObservationEncoder::create(ObservationEncoderKind::kConvolution, factory, spaces,
                                                      kFeatures, Initialisation(xland.options));
      ParameterBuffer parameters(factory.take());
      parameters.to(device->device, type);
      ModelOptions options = xland.options;
      options.fused_kernels = fused;
      const kernels::KernelPlan plan = plan_of(options, xland.shape(), LossPositions::kAll,
                                               kernels::DeviceTraits::of(device->device), type);
      SingleCommunicator alone(device->device);
      GradientReducer reducer(parameters.leaves(), alone, {});
      const auto encode = [&] { return (*encoder)(batch, {plan, &reducer}); };
      const at::Tensor gradient = at::randn_like(encode().detach());
      const double forward = testing::microseconds([&] {
        const at::NoGradGuard no_grad;
        encode();
      });
      const double both = testing::microseconds([&] {
        reducer.begin_micro_step(false);
        encode().backward(gradient);
      });
      fmt::print("{} {}: forward {:.0f} us, forward and backward {:.0f} us\n", c10::toString(type),
                 plan.fused_encoder() ? "by kernels of ours" : "by plain operators", forward, both);
    }
  }
}

INSTANTIATE_TEST_SUITE_P(OfEachGrid, FusedEncoder, ::testing::Values("any_space_xland", "any_space_channels"),
                         [](const auto& grid) { return grid.param; });

}  // namespace
}  // namespace adtrain
