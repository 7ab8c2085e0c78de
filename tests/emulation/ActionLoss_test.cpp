#include "model/kernels/fused/ActionLoss.h"

#include <array>
#include <cmath>
#include <string>
#include <vector>

#include <ATen/ATen.h>
#include <gtest/gtest.h>
#include <torch/csrc/autograd/autograd.h>

#include "model/FusedBlockChecks.h"

namespace adtrain {
namespace {

using testing::error_of;
using testing::FusedBlockData;

/// The head of plain AD with its cross-entropy, twice.
void expect_action_loss_is_the_reference(const kernels::ActionLossShape& shape) {
  constexpr float kSmoothing = 0.1f, kGradient = 1.0f / 512;
  const int64_t rows = shape.rows, sequences = rows / shape.queries, width = shape.width;
  const auto& of = FusedBlockData::of;
  const at::Tensor encoded = at::randn({rows, width}).to(at::kBFloat16),
                   weight = at::randn({shape.actions, width})
                                .mul_(3 / std::sqrt(static_cast<double>(width)))
                                .to(at::kBFloat16),
                   bias = at::randn({shape.actions}).mul_(0.5).to(at::kBFloat16),
                   taken = at::randint(shape.actions, {sequences, shape.transitions}, at::kInt);

  const at::Tensor targets =
      taken.narrow(1, shape.transitions - shape.queries, shape.queries).flatten().to(at::kLong);
  std::vector<at::Tensor> inputs;
  for (const at::Tensor& input : {encoded, weight, bias}) {
    inputs.push_back(input.to(at::kDouble).requires_grad_());
  }
  const at::Tensor logits = at::linear(inputs[0], inputs[1], inputs[2]);
  const at::Tensor loss = at::cross_entropy_loss(logits, targets, {}, at::Reduction::Sum, -1, kSmoothing);
  const auto gradients = torch::autograd::grad({loss * kGradient}, inputs);

  const kernels::HeadWeights head = {of(weight), of(bias)};
  const auto places = kernels::HeadGradients::of(shape.actions, shape.width);
  at::Tensor losses[2], d_encoded[2], sums[2];
  for (int repeat = 0; repeat < 2; ++repeat) {
    losses[repeat] = at::full({kernels::action_loss_parts(shape)}, NAN, at::kFloat);
    const at::Tensor correct = at::full(losses[repeat].sizes(), -1, at::kLong);
    const at::Tensor slopes = at::full({rows, kernels::ActionLossShape::kMostActions}, NAN, at::kFloat);
    kernels::action_loss(shape, of(encoded), head, taken.data_ptr<int32_t>(), kSmoothing,
                         slopes.data_ptr<float>(),
                         {losses[repeat].data_ptr<float>(), correct.data_ptr<int64_t>()}, nullptr);
    // Where two logits differ by less than fp32 knows, the other one may come first.
    EXPECT_NEAR(correct.sum().item<double>(), logits.argmax(-1).eq(targets).sum().item<double>(), 1);

    d_encoded[repeat] = at::full_like(encoded, NAN);
    const at::Tensor parts =
        at::full({kernels::action_loss_backward_parts(shape), places.total}, NAN, at::kFloat);
    kernels::action_loss_backward(shape, &kGradient, slopes.data_ptr<float>(), of(encoded), head,
                                  of(d_encoded[repeat]), parts.data_ptr<float>(), nullptr);
    sums[repeat] = testing::sum_of(parts);
  }
  EXPECT_LT(error_of(losses[0].sum(), loss), 1e-5);
  EXPECT_LT(error_of(d_encoded[0], gradients[0]), 6e-3);
  EXPECT_LT(error_of(sums[0].narrow(0, 0, weight.numel()), gradients[1]), 6e-3);
  EXPECT_LT(error_of(sums[0].narrow(0, places.bias, shape.actions), gradients[2]), 6e-3);
  EXPECT_TRUE(at::equal(losses[0], losses[1])) << "not the same on repeat";
  EXPECT_TRUE(at::equal(d_encoded[0], d_encoded[1])) << "not the same on repeat";
  EXPECT_TRUE(at::equal(sums[0], sums[1])) << "not the same on repeat";
}

TEST(EmulatedActionLoss, IsTheReferenceInAnyOrderOfThreads) {
  at::manual_seed(1);
  for (const auto& [sequences, queries, transitions, width, actions] : std::vector<std::array<int, 5>>{
           {70, 1, 9, 64, 5}, {1, 1, 1, 32, 5}, {37, 1, 5, 96, 3}, {33, 7, 7, 64, 8}, {530, 1, 2, 32, 2}}) {
    SCOPED_TRACE(std::to_string(sequences) + " sequences");
    expect_action_loss_is_the_reference({int64_t{sequences} * queries, queries, transitions, width, actions});
  }
}

}  // namespace
}  // namespace adtrain
