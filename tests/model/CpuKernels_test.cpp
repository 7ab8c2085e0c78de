// The fused CPU forms against the same mathematics in torch's operators.

#include <cmath>
#include <limits>

#include <gtest/gtest.h>

#include "model/RandomBatch.h"
#include "model/kernels/CpuAttention.h"
#include "model/kernels/CpuElementwise.h"
#include "model/kernels/Vec.h"

namespace adtrain {
namespace {

using testing::relative_error;

TEST(CpuKernels, ExpIsAccurateOverItsWholeRange) {
  for (float x = -86.9F; x < 87.9F; x += 0.0137F) {
    const float found = kernels::exp(kernels::Vec{} + x)[0];
    ASSERT_NEAR(found / std::exp(static_cast<double>(x)), 1.0, 4e-7) << x;
  }
  EXPECT_EQ(kernels::exp(kernels::Vec{} - std::numeric_limits<float>::infinity())[0], 0.0F);
  EXPECT_TRUE(std::isnan(kernels::exp(kernels::Vec{} + std::numeric_limits<float>::quiet_NaN())[0]));
}

/// Output and input gradients of `f` under a random weighting of its output.
template <class F>
std::vector<at::Tensor> with_gradients(F f, const std::vector<at::Tensor>& inputs,
                                       const at::Tensor& weighting) {
  std::vector<at::Tensor> leaves;
  for (const at::Tensor& input : inputs) leaves.push_back(input.detach().clone().set_requires_grad(true));
  std::vector<at::Tensor> results = {f(leaves)};
  (results[0] * weighting).sum().backward();
  for (const at::Tensor& leaf : leaves) results.push_back(leaf.grad());
  return results;
}

void expect_alike(const std::vector<at::Tensor>& found, const std::vector<at::Tensor>& expected) {
  ASSERT_EQ(found.size(), expected.size());
  for (size_t i = 0; i < found.size(); ++i)
    EXPECT_LT(relative_error(found[i], expected[i]), 3e-6) << "result " << i;
}

struct Case {
  int64_t context, queries, rows, heads, size;
  bool rotary;
};

TEST(CpuKernels, AttentionIsThatOfTorchsOperators) {
  const Case cases[] = {{1, 1, 1, 1, 8, true},    {7, 7, 14, 2, 16, true},   {7, 7, 7, 2, 16, true},
                        {33, 0, 33, 3, 8, false}, {20, 0, 1, 2, 24, true},   {13, 5, 18, 1, 32, false},
                        {13, 5, 5, 2, 8, true},   {80, 80, 160, 2, 16, true}};
  for (const Case& each : cases) {
    SCOPED_TRACE(::testing::Message() << each.context << " " << each.queries << " " << each.rows);
    const int64_t tokens = each.context + each.queries;
    const at::Tensor fused = at::randn({2, tokens, 3 * each.heads * each.size});
    const at::Tensor weighting = at::randn({2, each.rows, each.heads * each.size});
    const Streams streams = each.queries > 0 ? Streams::two(each.context, each.queries, fused)
                                             : Streams::one(each.context, fused);
    Streams by_operators = streams;
    by_operators.mask =
        streams.mask.unsqueeze(0).unsqueeze(0);  // looks like padded rows, which the kernel leaves alone
    const Rotary rotary =
        each.rotary ? Rotary::of(at::randint(50, {tokens}, at::kLong), each.size) : Rotary{};
    const auto attend_with = [&](const Streams& how) {
      return [&](const std::vector<at::Tensor>& leaves) {
        const at::Tensor qkv = leaves[0].view({2, tokens, each.heads, 3, each.size}).permute({3, 0, 2, 1, 4});
        EXPECT_EQ(kernels::cpu_attention_fits(qkv, how, 0), &how == &streams);
        return attend(qkv, each.rows, how, rotary, 0);
      };
    };
    expect_alike(with_gradients(attend_with(streams), {fused}, weighting),
                 with_gradients(attend_with(by_operators), {fused}, weighting));
  }
}

TEST(CpuKernels, LargeScoresDoNotOverflow) {
  const at::Tensor qkv = at::randn({3, 1, 1, 12, 8}) * 100;
  EXPECT_TRUE(attend(qkv, 12, Streams::two(6, 6, qkv), {}, 0).isfinite().all().item<bool>());
}

TEST(CpuKernels, SiluProductIsThatOfTorchsOperators) {
  const at::Tensor a = at::randn({3, 5, 24}) * 4;
  const at::Tensor b = at::randn({3, 5, 24});
  const at::Tensor weighting = at::randn({3, 5, 24});
  ASSERT_TRUE(kernels::cpu_elementwise_fits(a));
  const auto fused = [](const std::vector<at::Tensor>& x) {
    return kernels::silu_product_on_cpu(x[0], x[1]);
  };
  const auto operators = [](const std::vector<at::Tensor>& x) { return at::silu(x[0]) * x[1]; };
  expect_alike(with_gradients(fused, {a, b}, weighting), with_gradients(operators, {a, b}, weighting));
}

TEST(CpuKernels, RmsNormIsThatOfTorchsOperators) {
  const at::Tensor x = at::randn({7, 100, 16});
  const at::Tensor weight = at::randn({16});
  const at::Tensor weighting = at::randn({7, 100, 16});
  const auto fused = [](const std::vector<at::Tensor>& v) {
    return kernels::rms_norm_on_cpu(v[0], v[1], 1e-5);
  };
  const auto operators = [](const std::vector<at::Tensor>& v) {
    return v[0] * (v[0].square().mean(-1, true) + 1e-5).rsqrt() * v[1];
  };
  expect_alike(with_gradients(fused, {x, weight}, weighting),
               with_gradients(operators, {x, weight}, weighting));
}

}  // namespace
}  // namespace adtrain
