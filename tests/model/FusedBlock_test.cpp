#include <array>

#include <ATen/ATen.h>
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/Gpu.h"
#include "distributed/GradientReducer.h"
#include "distributed/SingleCommunicator.h"
#include "model/RandomBatch.h"
#include "model/kernels/GradientPlace.h"
#include "model/kernels/fused/BlockTensors.h"

namespace adtrain {
namespace {

/// The fused blocks in the network: the plain blocks on the CPU in fp32 are the definition of what is right.
class FusedBlock : public ::testing::Test {
 protected:
  void SetUp() override {
    if (visible_gpu_count() == 0) GTEST_SKIP() << "no GPU here";
  }

  static testing::Variant small(int64_t width, double dropout, FusedKernels fused = FusedKernels::kAuto) {
    testing::Variant variant = testing::variant("post_norm");
    variant.options.tf_n_embd = width;
    variant.options.tf_n_head = 4;
    variant.options.tf_n_layer = 3;
    variant.options.n_transit = 37;
    variant.options.tf_dropout = variant.options.tf_attn_dropout = dropout;
    variant.options.fused_kernels = fused;
    return variant;
  }
  std::unique_ptr<AlgorithmDistillation> on_gpu(const testing::Variant& variant) const {
    auto model = testing::small_model(variant);
    model->parameters().to(gpu_, at::kBFloat16);
    return model;
  }
  Batch batch() const { return testing::random_plain(9, 37).to(gpu_); }

  const at::Device gpu_ = at::Device(at::kCUDA, 0);
};

void seed_gpu(uint64_t seed) {
  at::Generator generator = at::globalContext().defaultGenerator(at::Device(at::kCUDA, 0));
  generator.set_current_seed(seed);
}

constexpr std::array<LossPositions, 2> kPositions = {LossPositions::kLast, LossPositions::kAll};

TEST_F(FusedBlock, LossAndGradientAreThoseOfThePlainBlocks) {
  for (const int64_t width : {32, 64}) {
    const auto plain = testing::small_model(small(width, 0.0));
    const auto fused = on_gpu(small(width, 0.0)), library = on_gpu(small(width, 0.0, FusedKernels::kOff));
    const Batch input = testing::random_plain(9, 37);
    for (const LossPositions positions : kPositions) {
      SCOPED_TRACE(fmt::format("width {}, positions {}", width, static_cast<int>(positions)));
      EXPECT_FALSE(fused->why_not_fused(positions).has_value());
      EXPECT_TRUE(library->why_not_fused(positions).has_value());
      const auto expected = plain->loss(input, positions, true);
      const at::Tensor gradient = testing::flat_gradient(*plain, expected.sum);
      double worst_of_library = 0;
      for (const auto* model : {&library, &fused}) {
        const auto found = (*model)->loss(input.to(gpu_), positions, true);
        EXPECT_LT(testing::relative_error(found.sum.cpu(), expected.sum), 2e-2);
        const double error = testing::relative_error(
            testing::flat_gradient(**model, found.sum).cpu().to(at::kFloat), gradient);
        if (model == &library) worst_of_library = error;
        EXPECT_LT(error, std::max(0.04, 1.5 * worst_of_library));
      }
    }
  }
}

TEST_F(FusedBlock, AReducerGetsTheGradientsThatAutogradWouldHaveGot) {
  for (const LossPositions positions : kPositions) {
    const auto model = on_gpu(small(64, 0.1));
    const Batch input = batch();
    seed_gpu(11);
    const at::Tensor expected =
        testing::flat_gradient(*model, model->loss(input, positions, true).sum).to(at::kFloat);

    SingleCommunicator alone(gpu_);
    GradientReducer reducer(model->parameters().leaves(), alone, {});
    model->send_gradients_to(&reducer);
    for (int micro_step = 1; micro_step <= 2; ++micro_step) {  // they add up
      seed_gpu(11);
      reducer.begin_micro_step(true);
      model->loss(input, positions, true).sum.backward();
      EXPECT_LT(testing::relative_error(reducer.flat_gradient(), micro_step * expected), 5e-3);
    }
    reducer.finish();
  }
}

TEST_F(FusedBlock, DropoutFollowsTheGenerator) {
  const auto model = on_gpu(small(64, 0.1));
  const Batch input = batch();
  const auto loss = [&](uint64_t seed, bool training) {
    seed_gpu(seed);
    return model->loss(input, LossPositions::kLast, training).sum.item<double>();
  };
  EXPECT_EQ(loss(1, true), loss(1, true));
  EXPECT_NE(loss(1, true), loss(2, true));
  EXPECT_NE(loss(1, true), loss(1, false));
  EXPECT_EQ(loss(1, false), loss(2, false));
}

TEST_F(FusedBlock, SaysWhyItDoesNotFit) {
  const auto why = [&](testing::Variant variant, at::ScalarType type = at::kBFloat16) {
    const auto model = testing::small_model(variant);
    model->parameters().to(gpu_, type);
    return model->why_not_fused(LossPositions::kLast).value_or("");
  };
  testing::Variant wide = small(64, 0.1);
  wide.options.tf_n_embd = 96;
  EXPECT_THAT(why(wide), ::testing::HasSubstr("width 96"));
  testing::Variant lengthy = small(64, 0.1);
  lengthy.options.n_transit = 257;
  EXPECT_THAT(why(lengthy), ::testing::HasSubstr("257 tokens"));
  EXPECT_THAT(why(small(64, 0.1), at::kHalf), ::testing::HasSubstr("bf16"));
  EXPECT_THAT(why(testing::variant("pre_norm")), ::testing::HasSubstr("post_norm"));
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
    const kernels::GradientPlace place(parameters, nullptr);
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
