#pragma once

#include <limits>
#include <vector>

#include <ATen/ATen.h>
#include <gtest/gtest.h>
#include <torch/csrc/autograd/autograd.h>

#include "kernels/MultiheadAttentionChecks.h"
#include "kernels/attention/StreamedAttention.h"
#include "kernels/norm/NormEpsilon.h"

/// streamed_attention(), the operation that networks of chosen pieces have, against float64: on a GPU, or
/// emulated on the CPU.
namespace adtrain::testing {

enum class NormsOfHeads { kNone, kRms, kLayer };

/// Random ones, of this head size.
inline kernels::HeadNorms random_head_norms(NormsOfHeads kind, int64_t head_size, at::Device device,
                                            at::ScalarType type) {
  const auto random = [&](double mean) {
    return at::randn({head_size}, at::device(device)).mul_(0.3).add_(mean).to(type).requires_grad_();
  };
  if (kind == NormsOfHeads::kNone) return {};
  const bool layer = kind == NormsOfHeads::kLayer;
  return {{random(1), layer ? random(0) : at::Tensor()}, {random(1), layer ? random(0) : at::Tensor()}};
}

/// By plain operators.
inline at::Tensor normed_plainly(const at::Tensor& heads, const at::Tensor& weight, const at::Tensor& bias) {
  if (bias.defined()) return at::layer_norm(heads, {heads.size(-1)}, weight, bias, kNormEpsilon);
  return heads * at::rsqrt(heads.square().mean(-1, true) + kNormEpsilon) * weight;
}

/// streamed_attention() with the bits that it draws: those of the generator's state before.
inline void expect_streamed_attention_is_the_reference(const MultiheadAttentionCase& tried, at::Device device,
                                                       NormsOfHeads normed = NormsOfHeads::kNone) {
  MultiheadAttentionData data(tried, device);
  FusedBlockData& block = data.block.block;
  const kernels::BlockShape& shape = data.shape();
  const kernels::HeadNorms norms = random_head_norms(normed, shape.width / shape.heads, device, tried.type);
  at::Generator generator = at::globalContext().defaultGenerator(device);
  const at::Tensor state = generator.get_state();
  if (tried.block.dropout > 0) {
    const kernels::BlockPass pass(block.x, shape.heads, tried.block.dropout, 0.0, /*own_attention=*/true,
                                  nullptr);
    const at::Tensor& bits = block.attention_dropout_mask;
    block.attention_dropout_mask = pass.attention_dropout_mask(shape.attention_rows(), 0).view(bits.sizes());
    generator.set_state(state);
  }
  const at::Tensor exact = data.projected().to(at::kDouble).requires_grad_();
  at::Tensor lse;
  torch::autograd::variable_list inputs = {exact};
  std::vector<at::Tensor> of_norms;
  for (const at::Tensor& parameter : norms.parameters())
    inputs.push_back(of_norms.emplace_back(parameter.detach().to(at::kDouble).requires_grad_()));
  std::vector<at::Tensor> heads = data.exact_heads(exact).unbind();
  if (norms.defined()) {
    const kernels::HeadNorms plain = kernels::HeadNorms::of(of_norms);
    heads[0] = normed_plainly(heads[0], plain.queries.weight, plain.queries.bias);
    heads[1] = normed_plainly(heads[1], plain.keys.weight, plain.keys.bias);
  }
  const at::Tensor expected = attention_of(at::stack(heads), block, lse);
  const auto right = torch::autograd::grad({expected}, inputs, {block.dy.to(at::kDouble)});

  const at::Tensor projected = data.projected().detach().requires_grad_();
  const auto penalty = tried.block.alibi ? kernels::DistancePenalty::kAlibi : kernels::DistancePenalty::kNone;
  // In fp32, so that its gradient is not rounded.
  const at::Tensor bias =
      norms.defined() || shape.queries > 0
          ? at::Tensor()
          : at::zeros({3 * shape.width}, projected.options().dtype(at::kFloat)).requires_grad_();
  const at::Tensor found = kernels::streamed_attention(
      data.by_kind(projected).permute({2, 0, 3, 1, 4}), shape.rows, penalty, tried.block.dropout, norms,
      /*main_gradients=*/nullptr,
      {.context = shape.tokens, .queries = shape.queries, .segments = block.segments}, bias);
  EXPECT_LT(error_of(found, expected), value_tolerance(tried));
  torch::autograd::variable_list given = {projected};
  for (const at::Tensor& parameter : norms.parameters()) given.push_back(parameter);
  if (bias.defined()) given.push_back(bias);
  const auto gradients = torch::autograd::grad({found}, given, {block.dy});
  for (int64_t kind = 0; kind < 3; ++kind) {
    SCOPED_TRACE("qkv"[kind]);
    expect_gradient(data.by_kind(gradients[0]).select(2, kind), data.by_kind(right[0]).select(2, kind),
                    gradient_tolerance(tried), tried.gradient);
  }
  if (bias.defined()) {
    const at::Tensor added = data.by_kind(gradients[0]).to(at::kDouble), of_bias = gradients[1];
    const at::Tensor wrong = (of_bias - added.flatten(0, 1).sum(0).flatten()).abs(),
                     most = 1e-5 * added.abs().flatten(0, 1).sum(0).flatten();
    EXPECT_TRUE(wrong.le(most).all().item<bool>()) << "sums of columns, by " << wrong.max();
    return;
  }
  if (!norms.defined()) return;
  // Together: a bias of all keys changes no weights, so that its gradient is what rounding leaves.
  const auto of_parameters = [](const torch::autograd::variable_list& all) {
    return at::cat(at::TensorList(all).slice(1));
  };
  expect_gradient(of_parameters(gradients), of_parameters(right), gradient_tolerance(tried), tried.gradient);
}

/// Queries over a context, as networks of chosen pieces have them; `long_ones`: for a GPU.
inline void expect_streamed_attention_of_two_streams_is_the_reference(at::Device device, bool long_ones) {
  std::vector<FusedBlockCase> cases = {
      {{2, 70, 140, 128, 2, true, 70}, 0.1},  {{1, 65, 130, 64, 2, true, 65}, 0.0},
      {{2, 100, 30, 64, 1, true, 60}, 0.1},   {{2, 1, 2, 64, 1, true, 1}, 0.0},
      {{1, 330, 500, 64, 1, true, 200}, 0.0}, {{1, 140, 280, 64, 1, true, 140}, 0.1, 4.0}};
  if (long_ones) {
    cases.push_back({{2, 1024, 2048, 512, 8, true, 1024}, 0.1});
    cases.push_back({{2, 1500, 1500, 384, 12, true, 1500}, 0.0});
    cases.push_back({{1, 4096, 8192, 128, 4, true, 4096}, 0.0});
  }
  for (const at::ScalarType type : {at::kBFloat16, at::kHalf}) {
    for (const NormsOfHeads norms : {NormsOfHeads::kNone, NormsOfHeads::kRms, NormsOfHeads::kLayer}) {
      if (type == at::kHalf && norms == NormsOfHeads::kRms) continue;
      for (FusedBlockCase tried : cases) {
        for (const bool alibi : {true, false}) {
          tried.alibi = alibi;
          const MultiheadAttentionCase of_case = {tried, Lying::kByThirds, type};
          SCOPED_TRACE(name_of(of_case));
          expect_streamed_attention_is_the_reference(of_case, device, norms);
        }
      }
    }
  }
}

/// In fp16 a gradient that overflowed before attention must be seen behind it, so that a loss scale falls.
inline void expect_overflow_comes_out(at::Device device) {
  constexpr int64_t kTokens = 70, kHeadSize = 64;
  const auto numbers = at::device(device).dtype(at::kHalf);
  const at::Tensor qkv =
      at::randn({3, 1, 1, kTokens, kHeadSize}, at::device(device)).to(at::kHalf).requires_grad_();
  for (const float wrong :
       {std::numeric_limits<float>::infinity(), std::numeric_limits<float>::quiet_NaN()}) {
    const at::Tensor output =
        kernels::streamed_attention(qkv, kTokens, kernels::DistancePenalty::kNone, 0.0, {});
    at::Tensor d_output = at::ones({1, kTokens, kHeadSize}, numbers);
    d_output[0][40][3] = wrong;
    const at::Tensor found = torch::autograd::grad({output}, {qkv}, {d_output})[0];
    for (int64_t kind = 0; kind < 3; ++kind) {
      SCOPED_TRACE("qkv"[kind]);
      EXPECT_FALSE(found[kind][0][0][40].isfinite().all().item<bool>());
    }
    EXPECT_TRUE(found[0][0][0][0].isfinite().all().item<bool>()) << "another query";
  }
}

}  // namespace adtrain::testing
