#include <array>
#include <cmath>
#include <string>
#include <vector>

#include <ATen/ATen.h>
#include <gtest/gtest.h>
#include <torch/csrc/autograd/autograd.h>

#include "kernels/FusedBlockChecks.h"
#include "kernels/embedding/TokenEmbedding.h"
#include "kernels/loss/LinearCrossEntropy.h"

namespace adtrain {
namespace {

using testing::error_of;
using testing::FusedBlockData;

at::ScalarType scalar_type_of(kernels::ShortType type) {
  return type == kernels::ShortType::kHalf ? at::kHalf : at::kBFloat16;
}

/// Numbers of transitions to tokens, and the gradients back, twice.
void expect_token_embedding_is_the_reference(const kernels::TokenShape& shape) {
  const auto& of = FusedBlockData::of;
  const int64_t sequences = shape.sequences, length = shape.transitions, width = shape.width;
  const auto cells = [&] { return at::randint(shape.grid_size, {sequences, length, 2}, at::kInt); };
  const at::Tensor states = cells(), next_states = cells(),
                   actions = at::randint(shape.actions, {sequences, length}, at::kInt),
                   rewards = at::randn({sequences, length});
  const int64_t grid = int64_t{shape.grid_size} * shape.grid_size;
  const at::ScalarType type = scalar_type_of(shape.type);
  std::vector<at::Tensor> parameters, exact;
  for (const std::vector<int64_t>& sizes : std::vector<std::vector<int64_t>>{
           {width, shape.features()}, {width}, {width}, {grid, width}, {length, width}}) {
    parameters.push_back(at::randn(sizes).to(type));
    exact.push_back(parameters.back().to(at::kDouble).requires_grad_());
  }

  const at::Tensor one_hot = actions.unsqueeze(-1).eq(at::arange(shape.actions, at::kInt));
  // Features are rounded as all that is multiplied.
  const at::Tensor real = rewards.to(type).to(at::kDouble).unsqueeze(-1);
  const at::Tensor features =
      at::cat({states.to(at::kDouble), one_hot.to(at::kDouble), real, next_states.to(at::kDouble)}, -1)
          .narrow(1, 0, shape.context);
  const at::Tensor state = (states.select(-1, 0) * shape.grid_size + states.select(-1, 1))
                               .narrow(1, length - shape.queries, shape.queries)
                               .to(at::kLong);
  const at::Tensor expected =
      at::cat({at::linear(features, exact[0], exact[1]) + exact[2] + exact[4].narrow(0, 0, shape.context),
               at::embedding(exact[3], state) + exact[4].narrow(0, length - shape.queries, shape.queries)},
              1);
  const at::Tensor dx = at::randn({sequences, shape.tokens(), width}).to(type);
  const auto gradients = torch::autograd::grad({expected}, exact, {dx.to(at::kDouble)});

  const kernels::TransitionArrays transitions = {states.data_ptr<int32_t>(), actions.data_ptr<int32_t>(),
                                                 rewards.data_ptr<float>(), next_states.data_ptr<int32_t>()};
  const kernels::EmbeddingWeights weights = {of(parameters[0]), of(parameters[1]), of(parameters[2]),
                                             of(parameters[3]), of(parameters[4])};
  const at::Tensor x = at::full_like(dx, NAN);
  kernels::embed_tokens(shape, transitions, weights, of(x), nullptr);
  EXPECT_LT(error_of(x, expected), type == at::kHalf ? 5e-4 : 4e-3);

  std::vector<at::Tensor> found[2];
  for (std::vector<at::Tensor>& each : found) {
    for (const at::Tensor& parameter : parameters) each.push_back(at::ones(parameter.sizes()));
    const auto to = [&](int k) { return each[k].data_ptr<float>(); };
    const at::Tensor partial_sums = at::full({kernels::embedding_partial_sums(shape)}, NAN, at::kFloat);
    kernels::embed_tokens_backward(shape, transitions, of(dx), partial_sums.data_ptr<float>(),
                                   {to(0), to(1), to(2), to(3), to(4)}, nullptr);
  }
  for (size_t k = 0; k < parameters.size(); ++k) {
    EXPECT_LT(error_of(found[0][k] - 1, gradients[k]), 1e-4) << k;
    EXPECT_TRUE(at::equal(found[0][k], found[1][k])) << k << " is not the same on repeat";
  }
}

TEST(EmulatedTokenEmbedding, IsTheReferenceInAnyOrderOfThreads) {
  for (const auto& [sequences, transitions, context, queries, width, actions, grid_size] :
       std::vector<std::array<int, 7>>{
           {35, 20, 19, 1, 64, 5, 3},
           {3, 18, 18, 18, 32, 8, 11},
           {1, 1, 0, 1, 96, 2, 3},
           {5, 40, 20, 17, 64, 5, 3},
           {5, 40, 30, 17, 32, 5, 3},
           {70, 20, 20, 20, 64, 5, 9},
           // Wide enough for a warp to take more sequences than it copies at once.
           {70, 2, 1, 1, 2144, 5, 3}}) {
    SCOPED_TRACE(std::to_string(sequences) + " sequences");
    for (const kernels::ShortType type : {kernels::ShortType::kBFloat16, kernels::ShortType::kHalf}) {
      expect_token_embedding_is_the_reference(
          {sequences, transitions, context, queries, width, actions, grid_size, type});
    }
  }
}

/// The head of plain AD with its cross-entropy, twice.
void expect_action_loss_is_the_reference(const kernels::LinearCrossEntropyShape& shape) {
  constexpr float kSmoothing = 0.1f, kGradient = 1.0f / 512;
  const int64_t rows = shape.rows, sequences = rows / shape.queries, width = shape.width;
  const auto& of = FusedBlockData::of;
  const at::ScalarType type = scalar_type_of(shape.type);
  const double tolerance = type == at::kHalf ? 1.5e-3 : 6e-3;
  const at::Tensor
      encoded = at::randn({rows, width}).to(type),
      weight = at::randn({shape.actions, width}).mul_(3 / std::sqrt(static_cast<double>(width))).to(type),
      bias = at::randn({shape.actions}).mul_(0.5).to(type),
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
    losses[repeat] = at::full({kernels::linear_cross_entropy_parts(shape)}, NAN, at::kFloat);
    const at::Tensor correct = at::full(losses[repeat].sizes(), -1, at::kLong);
    const at::Tensor slopes =
        at::full({rows, kernels::LinearCrossEntropyShape::kMostActions}, NAN, at::kFloat);
    kernels::linear_cross_entropy(shape, of(encoded), head, taken.data_ptr<int32_t>(), kSmoothing,
                                  slopes.data_ptr<float>(),
                                  {losses[repeat].data_ptr<float>(), correct.data_ptr<int64_t>()}, nullptr);
    // Where two logits differ by less than fp32 knows, the other one may come first.
    EXPECT_NEAR(correct.sum().item<double>(), logits.argmax(-1).eq(targets).sum().item<double>(), 1);

    d_encoded[repeat] = at::full_like(encoded, NAN);
    const at::Tensor parts =
        at::full({kernels::linear_cross_entropy_backward_parts(shape), places.total}, NAN, at::kFloat);
    kernels::linear_cross_entropy_backward(shape, &kGradient, slopes.data_ptr<float>(), of(encoded), head,
                                           of(d_encoded[repeat]), parts.data_ptr<float>(), nullptr);
    sums[repeat] = testing::sum_of(parts);
  }
  EXPECT_LT(error_of(losses[0].sum(), loss), 1e-5);
  EXPECT_LT(error_of(d_encoded[0], gradients[0]), tolerance);
  EXPECT_LT(error_of(sums[0].narrow(0, 0, weight.numel()), gradients[1]), tolerance);
  EXPECT_LT(error_of(sums[0].narrow(0, places.bias, shape.actions), gradients[2]), tolerance);
  EXPECT_TRUE(at::equal(losses[0], losses[1])) << "not the same on repeat";
  EXPECT_TRUE(at::equal(d_encoded[0], d_encoded[1])) << "not the same on repeat";
  EXPECT_TRUE(at::equal(sums[0], sums[1])) << "not the same on repeat";
}

TEST(EmulatedLinearCrossEntropy, IsTheReferenceInAnyOrderOfThreads) {
  for (const auto& [sequences, queries, transitions, width, actions] : std::vector<std::array<int, 5>>{
           {70, 1, 9, 64, 5}, {1, 1, 1, 32, 5}, {37, 1, 5, 96, 3}, {33, 7, 7, 64, 8}, {1030, 1, 2, 32, 2}}) {
    SCOPED_TRACE(std::to_string(sequences) + " sequences");
    for (const kernels::ShortType type : {kernels::ShortType::kBFloat16, kernels::ShortType::kHalf}) {
      expect_action_loss_is_the_reference(
          {int64_t{sequences} * queries, queries, transitions, width, actions, type});
    }
  }
}

}  // namespace
}  // namespace adtrain
