#include "kernels/attention/cudnn/CudnnAttention.h"

#include <cmath>
#include <limits>
#include <string>
#include <vector>

#include <ATen/ATen.h>
#include <ATen/cuda/CUDAGraph.h>
#include <c10/cuda/CUDAGuard.h>
#include <fmt/format.h>
#include <gtest/gtest.h>
#include <torch/csrc/autograd/autograd.h>

#include "base/Gpu.h"

namespace adtrain {
namespace {

using kernels::cudnn_attention;
using kernels::DistancePenalty;

/// Of the whole tensor: 16-bit numbers near 0 may be wrong by many times themselves.
double error_of_norm(const at::Tensor& found, const at::Tensor& expected) {
  return ((found.to(at::kDouble) - expected).norm() / expected.norm()).item<double>();
}

/// Queries, keys and values (3, B, heads, tokens, size): views of a fused projection, or stacked.
at::Tensor random_qkv(int64_t heads, int64_t tokens, int64_t size, at::ScalarType type, bool projected) {
  constexpr int64_t kSequences = 2;
  const auto options = at::TensorOptions().device(at::kCUDA).dtype(type);
  if (!projected) return at::randn({3, kSequences, heads, tokens, size}, options);
  return at::randn({kSequences, tokens, 3, heads, size}, options).permute({2, 0, 3, 1, 4});
}

/// The definition, in float64.
at::Tensor attended_plainly(const at::Tensor& qkv, DistancePenalty penalty) {
  const int64_t heads = qkv.size(2), tokens = qkv.size(3);
  const auto numbers = qkv.options().dtype(at::kDouble).requires_grad(false);
  at::Tensor scores =
      at::matmul(qkv[0], qkv[1].transpose(2, 3)) / std::sqrt(static_cast<double>(qkv.size(4)));
  const at::Tensor place = at::arange(tokens, numbers);
  const at::Tensor distance = place.unsqueeze(1) - place.unsqueeze(0);
  if (penalty == DistancePenalty::kAlibi) {
    const at::Tensor head = at::arange(1, heads + 1, numbers);
    scores = scores - at::exp2(head * (-8.0 / static_cast<double>(heads))).view({heads, 1, 1}) * distance;
  }
  scores = scores.masked_fill(distance.lt(0), -std::numeric_limits<double>::infinity());
  return at::matmul(at::softmax(scores, -1), qkv[2]).transpose(1, 2).flatten(2);
}

at::Tensor gradient_of(const at::Tensor& output, const at::Tensor& d_output, const at::Tensor& input) {
  return torch::autograd::grad({output}, {input}, {d_output})[0];
}

struct Case {
  int64_t heads, tokens, size;
  at::ScalarType type;
  bool projected;
  DistancePenalty penalty;
};

class CudnnAttention : public ::testing::TestWithParam<Case> {
 protected:
  void SetUp() override {
    if (visible_gpu_count() == 0) GTEST_SKIP() << "no GPU here";
  }
};

TEST_P(CudnnAttention, OutputAndGradientAreTheDefinitions) {
  const Case& tried = GetParam();
  const double tolerance = tried.type == at::kHalf ? 1e-3 : 6e-3;
  const at::Tensor qkv =
      random_qkv(tried.heads, tried.tokens, tried.size, tried.type, tried.projected).requires_grad_();
  const at::Tensor exact = qkv.detach().to(at::kDouble).requires_grad_();
  const at::Tensor found = cudnn_attention(qkv, tried.penalty, 0.0);
  const at::Tensor expected = attended_plainly(exact, tried.penalty);
  ASSERT_EQ(found.sizes(), expected.sizes());
  EXPECT_LT(error_of_norm(found, expected), tolerance);

  const at::Tensor d_output = at::randn_like(found);
  const at::Tensor found_gradient = gradient_of(found, d_output, qkv);
  const at::Tensor expected_gradient = gradient_of(expected, d_output.to(at::kDouble), exact);
  EXPECT_EQ(found_gradient.strides(), qkv.strides());
  for (int64_t kind = 0; kind < 3; ++kind)
    EXPECT_LT(error_of_norm(found_gradient[kind], expected_gradient[kind]), tolerance) << "qkv"[kind];
}

std::vector<Case> cases() {
  std::vector<Case> all;
  for (const auto& [heads, tokens, size] :
       {std::array<int64_t, 3>{2, 64, 16}, {8, 65, 32}, {4, 240, 24}, {8, 1000, 64}, {2, 2049, 128}}) {
    for (const at::ScalarType type : {at::kBFloat16, at::kHalf}) {
      for (const DistancePenalty penalty : {DistancePenalty::kNone, DistancePenalty::kAlibi}) {
        for (const bool projected : {true, false})
          all.push_back({heads, tokens, size, type, projected, penalty});
      }
    }
  }
  return all;
}

INSTANTIATE_TEST_SUITE_P(Shapes, CudnnAttention, ::testing::ValuesIn(cases()), [](const auto& tested) {
  const Case& tried = tested.param;
  return fmt::format("{}_heads_of_{}_{}_tokens_{}_{}_{}", tried.heads, tried.size, tried.tokens,
                     c10::toString(tried.type), tried.projected ? "projected" : "stacked",
                     tried.penalty == DistancePenalty::kAlibi ? "alibi" : "plain");
});

class CudnnAttentionDropout : public CudnnAttention {};

TEST_P(CudnnAttentionDropout, KeepsTheShareThatItShouldAndTheBackwardPassDropsTheSame) {
  const Case& tried = GetParam();
  constexpr double kRate = 0.25;
  // All scores are equal and all values 1: an output is the share of kept weights, scaled to 1 on average.
  const at::Tensor even = at::zeros({3, 4, tried.heads, tried.tokens, tried.size},
                                    at::TensorOptions().device(at::kCUDA).dtype(tried.type));
  even[2].fill_(1);
  const at::Tensor shares =
      cudnn_attention(even, DistancePenalty::kNone, kRate).narrow(1, tried.tokens / 2, tried.tokens / 2);
  EXPECT_NEAR(shares.to(at::kDouble).mean().item<double>(), 1.0, 0.02);
  EXPECT_GT(shares.to(at::kDouble).std().item<double>(), 1e-3) << "nothing is dropped";

  // The output is linear in the values: with the same weights kept, ⟨dV, V⟩ = ⟨dO, O⟩.
  const at::Tensor qkv =
      random_qkv(tried.heads, tried.tokens, tried.size, tried.type, tried.projected).requires_grad_();
  const at::Tensor output = cudnn_attention(qkv, tried.penalty, kRate);
  const at::Tensor d_output = at::randn_like(output);
  const at::Tensor d_values = gradient_of(output, d_output, qkv)[2].to(at::kDouble);
  const double by_values = (d_values * qkv.detach()[2].to(at::kDouble)).sum().item<double>();
  const double by_output = (d_output.to(at::kDouble) * output.detach().to(at::kDouble)).sum().item<double>();
  const double size =
      output.detach().to(at::kDouble).norm().item<double>() * d_output.to(at::kDouble).norm().item<double>();
  EXPECT_NEAR(by_values / size, by_output / size, 1e-4);
}

INSTANTIATE_TEST_SUITE_P(Shapes, CudnnAttentionDropout,
                         ::testing::Values(Case{8, 1024, 64, at::kBFloat16, true, DistancePenalty::kAlibi},
                                           Case{2, 240, 16, at::kHalf, false, DistancePenalty::kNone}));

TEST(CudnnAttentionGradients, RepeatBitForBitWithDeterministicAlgorithms) {
  if (visible_gpu_count() == 0) GTEST_SKIP() << "no GPU here";
  const bool before = at::globalContext().deterministicAlgorithms();
  at::globalContext().setDeterministicAlgorithms(true, /*warn_only=*/false);
  const at::Tensor qkv = random_qkv(8, 1024, 64, at::kBFloat16, true).requires_grad_();
  const at::Tensor d_output = at::randn({2, 1024, 8 * 64}, qkv.options().requires_grad(false));
  const auto gradient = [&] {
    return gradient_of(cudnn_attention(qkv, DistancePenalty::kAlibi, 0.0), d_output, qkv);
  };
  const at::Tensor first = gradient();
  for (int again = 0; again < 5; ++again) EXPECT_TRUE(at::equal(gradient(), first));
  at::globalContext().setDeterministicAlgorithms(before, /*warn_only=*/false);
}

TEST(CudnnAttentionCaptured, DropsAnewAtEachReplay) {
  if (visible_gpu_count() == 0) GTEST_SKIP() << "no GPU here";
  const at::Tensor qkv = random_qkv(8, 256, 64, at::kBFloat16, true);
  const auto attended = [&] { return cudnn_attention(qkv, DistancePenalty::kAlibi, 0.25); };
  attended();  // cuDNN compiles its kernels, which no capture may do
  const c10::cuda::CUDAStreamGuard on_side(c10::cuda::getStreamFromPool());
  at::cuda::CUDAGraph graph;
  graph.capture_begin();
  const at::Tensor output = attended();
  graph.capture_end();
  graph.replay();
  const at::Tensor first = output.clone();
  graph.replay();
  EXPECT_FALSE(at::equal(output, first));
  EXPECT_TRUE(at::isfinite(output).all().item<bool>());
}

}  // namespace
}  // namespace adtrain
