#include <cmath>
#include <limits>
#include <utility>
#include <vector>

#include <ATen/ATen.h>
#include <gtest/gtest.h>
#include <torch/csrc/autograd/autograd.h>

#include "base/Gpu.h"
#include "collectives/SingleCommunicator.h"
#include "kernels/WithHalf.h"
#include "kernels/loss/FusedLinearCrossEntropy.h"
#include "model/RandomBatch.h"
#include "parallel/GradientReducer.h"

namespace adtrain {
namespace {

struct Case {
  std::string name;
  int64_t sequences, queries, transitions, width;
  int64_t actions = 5;
  double label_smoothing = 0.1;
  at::ScalarType type = at::kBFloat16;
};

at::Tensor random_leaf(at::IntArrayRef sizes, double deviation, at::ScalarType type) {
  return at::randn(sizes, at::device(at::kCUDA)).mul_(deviation).to(type).set_requires_grad(true);
}

double error_of(const at::Tensor& found, const at::Tensor& expected) {
  const at::Tensor right = expected.detach().to(at::kDouble);
  return ((found.detach().to(at::kDouble) - right).norm() / right.norm().clamp_min(1e-12)).item<double>();
}

/// The plain operators in float64 are the definition of what is right.
class LinearCrossEntropy : public ::testing::TestWithParam<Case> {
 protected:
  void SetUp() override {
    if (visible_gpu_count() == 0) GTEST_SKIP() << "no GPU here";
    const Case& tried = GetParam();
    encoded_ = random_leaf({tried.sequences, tried.queries, tried.width}, 1, tried.type);
    head_ = {random_leaf({tried.actions, tried.width}, 3 / std::sqrt(static_cast<double>(tried.width)),
                         tried.type),
             random_leaf({tried.actions}, 0.5, tried.type)};
    actions_ = at::randint(tried.actions, {tried.sequences, tried.transitions},
                           at::device(at::kCUDA).dtype(at::kInt));
  }

  kernels::LinearCrossEntropySum found() const {
    return kernels::fused_linear_cross_entropy(encoded_, actions_, head_, GetParam().label_smoothing,
                                               nullptr);
  }
  at::Tensor targets() const {
    return actions_.narrow(1, GetParam().transitions - GetParam().queries, GetParam().queries).to(at::kLong);
  }

  at::Tensor encoded_, actions_;
  std::vector<at::Tensor> head_;
};

TEST_P(LinearCrossEntropy, AndItsGradientsAreThoseOfThePlainOperators) {
  std::vector<at::Tensor> exact, inputs = {encoded_, head_[0], head_[1]};
  for (const at::Tensor& input : inputs)
    exact.push_back(input.detach().to(at::kDouble).set_requires_grad(true));
  const at::Tensor logits = at::linear(exact[0], exact[1], exact[2]);
  const at::Tensor sum = at::cross_entropy_loss(logits.flatten(0, 1), targets().flatten(), {},
                                                at::Reduction::Sum, -1, GetParam().label_smoothing);
  const kernels::LinearCrossEntropySum loss = found();
  EXPECT_EQ(loss.sum.dim(), 0);
  EXPECT_EQ(loss.sum.scalar_type(), at::kFloat);
  EXPECT_EQ(loss.correct.scalar_type(), at::kLong);
  EXPECT_FALSE(loss.correct.requires_grad());
  EXPECT_LT(error_of(loss.sum, sum), 1e-5);
  // Where two logits differ by less than fp32 knows, the other one may come first.
  EXPECT_NEAR(loss.correct.item<double>(), logits.argmax(-1).eq(targets()).sum().item<double>(), 1);

  const double scale = 1.0 / 512;
  const auto of_right = torch::autograd::grad({sum * scale}, {exact.begin(), exact.end()});
  const auto of_found = torch::autograd::grad({loss.sum * scale}, {inputs.begin(), inputs.end()});
  const auto again = torch::autograd::grad({found().sum * scale}, {inputs.begin(), inputs.end()});
  for (size_t input = 0; input < inputs.size(); ++input) {
    EXPECT_EQ(of_found[input].sizes(), inputs[input].sizes());
    EXPECT_LT(error_of(of_found[input], of_right[input]), GetParam().type == at::kHalf ? 2e-3 : 6e-3)
        << input;
    EXPECT_TRUE(at::equal(of_found[input], again[input])) << input;
  }
}

TEST_P(LinearCrossEntropy, OfEqualLogitsTheFirstIsThePrediction) {
  const at::NoGradGuard no_grad;
  for (const at::Tensor& parameter : head_) parameter.zero_();
  EXPECT_EQ(found().correct.item<int64_t>(), targets().eq(0).sum().item<int64_t>());
  const double of_each = std::log(static_cast<double>(GetParam().actions));
  EXPECT_NEAR(found().sum.item<double>() / static_cast<double>(targets().numel()), of_each, 1e-4);
}

TEST_P(LinearCrossEntropy, NanPassesThrough) {
  const at::NoGradGuard no_grad;
  encoded_[0][0][0] = std::numeric_limits<float>::quiet_NaN();
  EXPECT_TRUE(found().sum.isnan().item<bool>());
}

INSTANTIATE_TEST_SUITE_P(
    Shapes, LinearCrossEntropy,
    ::testing::ValuesIn(testing::with_fp16<Case>(
        {Case{"the_guides", 512, 1, 240, 64}, Case{"narrow", 70, 1, 80, 32},
         Case{"whole", 100, 1, 9, 64, 5, 0.0}, Case{"of_one_row", 1, 1, 1, 64},
         Case{"of_odd_sizes", 37, 1, 5, 96, 3, 0.3}, Case{"of_eight_actions", 1027, 1, 7, 64, 8},
         Case{"of_two_actions", 33, 1, 7, 32, 2}, Case{"wide", 20, 3, 7, 768}, Case{"wider", 33, 5, 7, 2048},
         Case{"widest", 9, 4, 7, 4096, 8}, Case{"of_all_positions", 130, 37, 37, 64},
         Case{"of_many_rows", 700, 30, 40, 32}})),
    [](const auto& tried) { return tried.param.name; });

/// The network with both ends by our own kernels; where its blocks are the plain ones too.
class FusedEnds : public ::testing::TestWithParam<LossPositions> {
 protected:
  void SetUp() override {
    if (visible_gpu_count() == 0) GTEST_SKIP() << "no GPU here";
  }

  std::unique_ptr<AlgorithmDistillation> model(int64_t width, FusedKernels fused, at::ScalarType type) const {
    testing::Variant variant = testing::variant("post_norm");
    variant.options.tf_n_embd = width;
    variant.options.n_transit = 37;
    variant.options.fused_kernels = fused;
    auto made = testing::small_model(variant);
    made->parameters().to(gpu_, type);
    return made;
  }

  const at::Device gpu_ = at::Device(at::kCUDA, 0);
};

TEST_P(FusedEnds, LossGradientAndPredictionsAreThoseOfThePlainNetwork) {
  for (const auto& [width, type] : std::vector<std::pair<int64_t, at::ScalarType>>{
           {32, at::kBFloat16}, {64, at::kBFloat16}, {96, at::kBFloat16}, {32, at::kHalf}, {96, at::kHalf}}) {
    const auto plain = model(width, FusedKernels::kOff, type),
               fused = model(width, FusedKernels::kAuto, type);
    EXPECT_TRUE(fused->plan(GetParam()).fused_embedding() && fused->plan(GetParam()).fused_loss());
    const Batch batch = testing::random_plain(9, 37).to(gpu_);
    const auto expected = plain->loss(batch, GetParam(), false),
               found = fused->loss(batch, GetParam(), false);
    EXPECT_EQ(found.targets, expected.targets);
    EXPECT_LT(testing::relative_error(found.sum, expected.sum), 1e-2);
    EXPECT_NEAR(found.correct.item<double>(), expected.correct.item<double>(), 2 + 0.03 * expected.targets);
    const at::Tensor gradient = testing::flat_gradient(*plain, expected.sum);
    EXPECT_LT(testing::relative_error(testing::flat_gradient(*fused, found.sum), gradient), 6e-2) << width;

    SingleCommunicator alone(gpu_);
    GradientReducer reducer(fused->parameters().leaves(), alone, {});
    fused->send_gradients_to(&reducer);
    reducer.begin_micro_step(true);
    fused->loss(batch, GetParam(), false).sum.backward();
    reducer.finish();
    EXPECT_LT(testing::relative_error(reducer.flat_gradient(), gradient), 6e-2) << width;

    const auto right = plain->predict(batch), predicted = fused->predict(batch);
    EXPECT_LT(testing::relative_error(predicted.actions, right.actions), 5e-2) << width;
  }
}

INSTANTIATE_TEST_SUITE_P(Positions, FusedEnds, ::testing::Values(LossPositions::kLast, LossPositions::kAll),
                         [](const auto& tried) {
                           return tried.param == LossPositions::kAll ? "all" : "last";
                         });

}  // namespace
}  // namespace adtrain
