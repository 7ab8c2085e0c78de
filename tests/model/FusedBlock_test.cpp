#include <array>

#include <ATen/ATen.h>
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "collectives/SingleCommunicator.h"
#include "kernels/FusedDevice.h"
#include "kernels/GradientAccumulation.h"
#include "kernels/block/BlockTensors.h"
#include "model/FrozenGradients.h"
#include "model/RandomBatch.h"
#include "parallel/GradientReducer.h"

namespace adtrain {
namespace {

/// The fused blocks in the network: the plain blocks on the CPU in fp32 are the definition of what is right.
class FusedBlock : public ::testing::TestWithParam<const char*> {
 protected:
  void SetUp() override {
    if (!testing::fused_device()) GTEST_SKIP() << "no GPU here";
  }

  /// Of the block that is the parameter, where no other one is named.
  static testing::Variant small(int64_t width, double dropout, FusedKernels fused = FusedKernels::kOn,
                                const char* block = GetParam()) {
    testing::Variant variant = testing::variant(block);
    variant.options.tf_n_embd = width;
    variant.options.tf_n_head = 4;
    variant.options.tf_n_layer = testing::fused_device()->layers;
    variant.options.n_transit = testing::fused_device()->transitions;
    variant.options.compress_interval = interval();
    variant.options.tf_dropout = variant.options.tf_attn_dropout = dropout;
    variant.options.fused_kernels = fused;
    return variant;
  }
  static std::unique_ptr<AlgorithmDistillation> on_device(const testing::Variant& variant) {
    auto model = testing::small_model(variant);
    model->parameters().to(testing::fused_device()->device, at::kBFloat16);
    return model;
  }
  static bool compressed() { return std::string(GetParam()) == "compressed"; }
  static int64_t interval() { return (testing::fused_device()->transitions - 4) / 2; }
  static Batch batch(LossPositions positions) {
    const int64_t rows = testing::fused_device()->rows;
    if (!compressed()) return testing::random_plain(rows, testing::fused_device()->transitions);
    std::vector<int32_t> previous, current;
    for (int64_t row = 0; row < rows; ++row) {
      const auto full = static_cast<int32_t>(interval());
      previous.push_back(row % 3 == 1 ? 0 : full);
      current.push_back(positions == LossPositions::kAll || row % 3 == 0
                            ? full
                            : static_cast<int32_t>(row % 2 == 0 ? interval() / 2 : 0));
    }
    return testing::random_compressed(previous, current, interval());
  }
  static Batch batch_on_device(LossPositions positions) {
    return batch(positions).to(testing::fused_device()->device);
  }
  static void seed_device(uint64_t seed) {
    at::Generator generator = at::globalContext().defaultGenerator(testing::fused_device()->device);
    generator.set_current_seed(seed);
  }
};

INSTANTIATE_TEST_SUITE_P(OfEachKind, FusedBlock, ::testing::Values("post_norm", "pre_norm", "compressed"),
                         [](const auto& block) { return std::string(block.param); });

constexpr std::array<LossPositions, 2> kPositions = {LossPositions::kLast, LossPositions::kAll};

TEST_P(FusedBlock, LossAndGradientAreThoseOfThePlainBlocks) {
  for (const int64_t width : {32, 64}) {
    const auto plain = testing::small_model(small(width, 0.0));
    const auto fused = on_device(small(width, 0.0));
    for (const LossPositions positions : kPositions) {
      const Batch input = batch(positions);
      SCOPED_TRACE(fmt::format("width {}, positions {}", width, static_cast<int>(positions)));
      EXPECT_TRUE(fused->plan(positions).whole_blocks());
      const auto expected = plain->loss(input, positions, true);
      const at::Tensor gradient = testing::flat_gradient(*plain, expected.sum);
      /// Of the gradient; the loss must be right, too.
      const auto error_of = [&](AlgorithmDistillation& model) {
        const auto found = model.loss(input.to(testing::fused_device()->device), positions, true);
        EXPECT_LT(testing::relative_error(found.sum.cpu(), expected.sum), 2e-2);
        return testing::relative_error(testing::flat_gradient(model, found.sum).cpu().to(at::kFloat),
                                       gradient);
      };
      double tolerance = 0.04;
      if (testing::fused_device()->device.is_cuda()) {  // there libraries compute in 16 bit, too
        const auto library = on_device(small(width, 0.0, FusedKernels::kOff));
        EXPECT_FALSE(library->plan(positions).whole_blocks());
        tolerance = std::max(tolerance, 1.5 * error_of(*library));
      }
      EXPECT_LT(error_of(*fused), tolerance);
    }
  }
}

TEST_P(FusedBlock, AReducerGetsTheGradientsThatAutogradWouldHaveGot) {
  for (const LossPositions positions : kPositions) {
    const auto model = on_device(small(64, 0.1));
    const Batch input = batch_on_device(positions);
    seed_device(11);
    const at::Tensor expected =
        testing::flat_gradient(*model, model->loss(input, positions, true).sum).to(at::kFloat);

    SingleCommunicator alone(testing::fused_device()->device);
    GradientReducer reducer(model->parameters().leaves(), alone, {});
    model->send_gradients_to(&reducer);
    for (int micro_step = 1; micro_step <= 2; ++micro_step) {  // they add up
      seed_device(11);
      reducer.begin_micro_step(true);
      model->loss(input, positions, true).sum.backward();
      EXPECT_LT(testing::relative_error(reducer.flat_gradient(), micro_step * expected), 5e-3);
    }
    reducer.finish();
  }
}

TEST_P(FusedBlock, WhatIsFrozenChangesNoGradientOfTheOthers) {
  const Batch input = batch_on_device(LossPositions::kLast);
  const auto gradients = [&](bool freezes) {
    const auto model = on_device(small(64, 0.1));
    const auto frozen = freezes ? testing::some_of(model->parameters()) : std::set<std::string>();
    seed_device(11);
    return testing::gradients_of(*model, input, LossPositions::kLast, frozen);
  };
  const auto expected = gradients(false), found = gradients(true);
  EXPECT_LT(found.size(), 3 * expected.size() / 4);
  for (const auto& [name, gradient] : found) EXPECT_TRUE(at::equal(gradient, expected.at(name))) << name;
}

/// As an evaluation step by step asks it: contexts that grow.
TEST_P(FusedBlock, PredictsFromContextsOfAnyLength) {
  const auto plain = testing::small_model(small(64, 0.0));
  const auto fused = on_device(small(64, 0.0));
  const auto expect_near = [&](const Batch& input) {
    const at::Tensor expected = plain->predict(input).actions;
    const at::Tensor found = fused->predict(input.to(testing::fused_device()->device)).actions.cpu();
    EXPECT_LT(testing::relative_error(found, expected), 4e-2);
  };
  if (compressed()) return expect_near(batch(LossPositions::kLast));
  const Batch input = batch(LossPositions::kLast);
  for (const int64_t length : {int64_t{1}, int64_t{2}, int64_t{17}, testing::fused_device()->transitions}) {
    SCOPED_TRACE(length);
    expect_near(testing::prefix(input, length));
  }
}

TEST_P(FusedBlock, RecomputationChangesNoBit) {
  const Batch input = batch_on_device(LossPositions::kLast);
  at::Tensor expected;
  for (const Recompute recompute : {Recompute::kNone, Recompute::kBlock}) {
    testing::Variant variant = small(64, 0.1);
    variant.options.recompute = recompute;
    const auto model = on_device(variant);
    SingleCommunicator alone(testing::fused_device()->device);
    GradientReducer reducer(model->parameters().leaves(), alone, {});
    model->send_gradients_to(&reducer);
    seed_device(11);
    reducer.begin_micro_step(true);
    model->loss(input, LossPositions::kLast, true).sum.backward();
    reducer.finish();
    const at::Tensor found = reducer.flat_gradient().clone();
    if (recompute == Recompute::kNone) {
      expected = found;
    } else {
      EXPECT_TRUE(at::equal(found, expected));
    }
  }
}

TEST_P(FusedBlock, DropoutFollowsTheGenerator) {
  const auto model = on_device(small(64, 0.1));
  const Batch input = batch_on_device(LossPositions::kLast);
  const auto loss = [&](uint64_t seed, bool training) {
    seed_device(seed);
    return model->loss(input, LossPositions::kLast, training).sum.item<double>();
  };
  EXPECT_EQ(loss(1, true), loss(1, true));
  EXPECT_NE(loss(1, true), loss(2, true));
  EXPECT_NE(loss(1, true), loss(1, false));
  EXPECT_EQ(loss(1, false), loss(2, false));
}

TEST_P(FusedBlock, SaysWhyItDoesNotFit) {
  const auto why = [&](testing::Variant variant, at::ScalarType type = at::kBFloat16) {
    const auto model = testing::small_model(variant);
    model->parameters().to(testing::fused_device()->device, type);
    return model->plan(LossPositions::kLast).why_no_whole_blocks().value_or("");
  };
  testing::Variant wide = small(64, 0.1);
  wide.options.tf_n_embd = 96;
  EXPECT_THAT(why(wide), ::testing::HasSubstr("width 96"));
  testing::Variant lengthy = small(64, 0.1);
  lengthy.options.n_transit = 258;
  lengthy.options.compress_interval = 127;
  EXPECT_THAT(why(lengthy), ::testing::HasSubstr("258 tokens"));
  EXPECT_THAT(why(small(64, 0.1), at::kHalf), ::testing::HasSubstr("bf16"));
  EXPECT_THAT(why(small(64, 0.1, FusedKernels::kOff)), ::testing::HasSubstr("off"));
  EXPECT_EQ(why(small(64, 0.1)), "");
  EXPECT_EQ(why(small(64, 0.1, FusedKernels::kAuto, "post_norm")), "");
  EXPECT_EQ(why(small(64, 0.1, FusedKernels::kAuto, "pre_norm")), "");
  EXPECT_THAT(why(testing::variant("gpt2")), ::testing::HasSubstr("model AD"));
}

/// The kernels' sums lie where the parameters' gradients do.
TEST(FusedBlockGradients, LieAsTheParametersDo) {
  for (const int64_t width : {32, 64}) {
    const int64_t inner = 4 * width;
    std::vector<at::Tensor> parameters;
    for (const std::vector<int64_t>& shape : std::vector<std::vector<int64_t>>{{3 * width, width},
                                                                               {3 * width},
                                                                               {width, width},
                                                                               {width},
                                                                               {width},
                                                                               {width},
                                                                               {inner, width},
                                                                               {inner},
                                                                               {width, inner},
                                                                               {width},
                                                                               {width},
                                                                               {width}}) {
      parameters.push_back(at::zeros(shape, at::kBFloat16));
    }
    const kernels::GradientAccumulation place(parameters, nullptr);
    const auto attention = kernels::AttentionGradients::of(static_cast<int>(width));
    const auto mlp = kernels::MlpGradients::of(static_cast<int>(width));
    const auto offsets = [&](size_t first) {
      std::vector<int64_t> found;
      for (size_t k = first; k < first + 6; ++k)
        found.push_back(place.of(k).storage_offset() - place.of(first).storage_offset());
      found.push_back(place.of(first, 6).numel());
      return found;
    };
    using ::testing::ElementsAre;
    EXPECT_THAT(offsets(0), ElementsAre(attention.in_proj_weight, attention.in_proj_bias,
                                        attention.out_proj_weight, attention.out_proj_bias,
                                        attention.norm1_weight, attention.norm1_bias, attention.total));
    EXPECT_THAT(offsets(6), ElementsAre(mlp.linear1_weight, mlp.linear1_bias, mlp.linear2_weight,
                                        mlp.linear2_bias, mlp.norm2_weight, mlp.norm2_bias, mlp.total));
  }
}

}  // namespace
}  // namespace adtrain
