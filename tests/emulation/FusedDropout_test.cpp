#include <ATen/ATen.h>
#include <fmt/format.h>
#include <gtest/gtest.h>

#include "model/PreNormChecks.h"
#include "model/kernels/fused/FusedPreNorm.h"

namespace adtrain {
namespace {

/// A pre-norm block's operation beside float64, with the bits that it draws: the draws of block `number` are
/// 3 · number + {0: of the first norm's input, 1: of the second one's, 2: of the attention}.
class FusedDropout : public ::testing::Test {
 protected:
  static constexpr int kSequences = 3, kTokens = 21, kWidth = 64, kHeads = 4, kNumber = 1;
  static constexpr int kRows = kTokens + 5;  // of two streams

  at::Tensor random(at::IntArrayRef sizes, double deviation) const {
    return at::randn(sizes).mul_(deviation).to(at::kBFloat16).set_requires_grad(true);
  }
  at::Tensor kept(const at::Tensor& x, kernels::KeepProbability keep, const kernels::BlockPass& pass,
                  int64_t draw) const {
    if (keep.always()) return x;
    const at::Tensor words = pass.keep_bits(keep, x.numel() / 32, 3 * kNumber + draw);
    return x * testing::bits_of(words).to(at::kDouble).view(x.sizes()) * static_cast<double>(keep.scale());
  }
  static at::Tensor normed(const at::Tensor& x, const at::Tensor& weight) {
    return x * at::rsqrt(x.square().mean(-1, true) + 1e-5) * weight;
  }
};

TEST_F(FusedDropout, OfPreNormIsTheReferenceWithTheBitsThatItDraws) {
  at::manual_seed(3);
  for (const auto& [attention_rate, hidden_rate] :
       std::vector<std::pair<double, double>>{{0.1, 0.2}, {0.2, 0.0}, {0.0, 0.2}}) {
    SCOPED_TRACE(fmt::format("rates {} and {}", attention_rate, hidden_rate));
    const testing::FusedBlockCase tried = {{kSequences, kTokens, kRows, kWidth, kHeads, true, kTokens},
                                           attention_rate};
    testing::PreNormAttentionData data(tried, at::kCPU);
    const std::vector<at::Tensor> parameters = {random({kWidth}, 1),
                                                random({3 * kWidth, kWidth}, 0.125),
                                                random({3 * kWidth}, 0.2),
                                                random({kWidth, kWidth}, 0.125),
                                                random({kWidth}, 0.2),
                                                random({kWidth}, 1),
                                                random({4 * kWidth, kWidth}, 0.125),
                                                random({4 * kWidth, kWidth}, 0.125),
                                                random({kWidth, 4 * kWidth}, 0.1)};
    const at::Tensor x = random({kSequences, 2 * kTokens, kWidth}, 1),
                     dy = at::randn({kSequences, kRows, kWidth});
    const kernels::BlockPass pass(x, kHeads, attention_rate, hidden_rate, nullptr);
    const Rotary rotary = {data.cosines, data.sines};
    const at::Tensor y = kernels::fused_pre_norm_block(x, parameters, rotary, kTokens, kRows, kNumber, pass);

    std::vector<at::Tensor> exact = {x.detach().to(at::kDouble).set_requires_grad(true)};
    for (const at::Tensor& parameter : parameters) {
      exact.push_back(parameter.detach().to(at::kDouble).set_requires_grad(true));
    }
    const auto* p = &exact[1];
    const at::Tensor normed1 = normed(kept(exact[0], pass.keep_hidden, pass, 0), p[0]);
    if (attention_rate > 0) {
      const auto words = data.block.attention_bits.sizes();
      data.block.attention_bits =
          pass.keep_bits(pass.keep_attention, data.block.attention_bits.numel(), 3 * kNumber + 2).view(words);
      data.block.scale = pass.keep_attention.scale();
    }
    at::Tensor log_sums;
    const at::Tensor read = testing::attention_of(
        testing::PreNormAttentionReference::turned_by_heads(at::linear(normed1, p[1], p[2]), data),
        data.block, log_sums);
    const at::Tensor x1 = exact[0].narrow(1, 2 * kTokens - kRows, kRows) + at::linear(read, p[3], p[4]);
    const at::Tensor normed2 = normed(kept(x1, pass.keep_hidden, pass, 1), p[5]);
    const at::Tensor expected =
        x1 + at::linear(at::silu(at::linear(normed2, p[6])) * at::linear(normed2, p[7]), p[8]);
    EXPECT_LT(testing::error_of(y, expected), 1e-2);

    std::vector<at::Tensor> inputs = {x};
    inputs.insert(inputs.end(), parameters.begin(), parameters.end());
    const auto found = torch::autograd::grad({y}, inputs, {dy.to(at::kBFloat16)});
    const auto right = torch::autograd::grad({expected}, exact, {dy.to(at::kBFloat16).to(at::kDouble)});
    for (size_t k = 0; k < inputs.size(); ++k) {
      EXPECT_LT(testing::error_of(found[k], right[k]), 2.5e-2) << (k == 0 ? "x" : "parameter ") << k;
    }
  }
}

}  // namespace
}  // namespace adtrain
