#pragma once

#include <ATen/ATen.h>
#include <gtest/gtest.h>
#include <torch/csrc/autograd/autograd.h>

#include "model/FusedBlockCase.h"
#include "model/FusedBlockChecks.h"
#include "model/kernels/fused/PreNormAttention.h"
#include "model/kernels/fused/Swiglu.h"

/// Each kernel of a fused pre-norm block for itself, twice, against float64: on a GPU, or emulated on the
/// CPU.
namespace adtrain::testing {

/// The attention half's tensors: those of a post-norm block, and what a pre-norm one has beside them.
class PreNormAttentionData {
 public:
  PreNormAttentionData(const FusedBlockCase& tried, at::Device device) : block(tried, device) {
    const int64_t half = tried.shape.width / tried.shape.heads / 2;
    normed = at::randn_like(block.x);
    in_proj_weight = by_heads(block.in_proj_weight);
    in_proj_bias = by_heads(block.in_proj_bias);
    const auto real = at::device(device).dtype(at::kDouble);
    const at::Tensor angles = at::arange(tried.shape.tokens, real).unsqueeze(1) *
                              at::pow(1e4, at::arange(half, real) / static_cast<double>(-half));
    cosines = angles.cos().to(at::kFloat);
    sines = angles.sin().to(at::kFloat);
  }

  kernels::PreNormAttention attention() const {
    const kernels::KeepBits keep = block.keep();
    return {FusedBlockData::of(normed),
            FusedBlockData::of(in_proj_weight),
            FusedBlockData::of(in_proj_bias),
            FusedBlockData::of(block.out_proj_weight),
            FusedBlockData::of(block.out_proj_bias),
            cosines.data_ptr<float>(),
            sines.data_ptr<float>(),
            keep.attention,
            keep.attention_scale,
            FusedBlockData::of(block.read),
            block.log_sums.data_ptr<float>()};
  }

  FusedBlockData block;
  at::Tensor normed, in_proj_weight, in_proj_bias, cosines, sines;

 private:
  /// Rows in the order queries, keys, values, each by heads -> by heads, each queries, keys and values.
  at::Tensor by_heads(const at::Tensor& parameter) const {
    const kernels::BlockShape& shape = block.tried().shape;
    return parameter.view({3, shape.heads, shape.width / shape.heads, -1})
        .transpose(0, 1)
        .reshape(parameter.sizes());
  }
};

/// The attention half in float64.
class PreNormAttentionReference {
 public:
  explicit PreNormAttentionReference(const PreNormAttentionData& data) {
    const auto& [sequences, tokens, rows, width, heads, causal, queries] = data.block.tried().shape;
    for (const at::Tensor* parameter :
         {&data.in_proj_weight, &data.in_proj_bias, &data.block.out_proj_weight, &data.block.out_proj_bias}) {
      parameters.push_back(parameter->to(at::kDouble).requires_grad_());
    }
    normed = data.normed.to(at::kDouble).requires_grad_();
    const int64_t length = tokens + queries;
    const at::Tensor qkv = at::linear(normed, parameters[0], parameters[1])
                               .view({sequences, length, heads, 3, width / heads})
                               .permute({3, 0, 2, 1, 4});
    const at::Tensor rotated_qkv = at::stack({rotated(qkv[0], data), rotated(qkv[1], data), qkv[2]});
    read = attention_of(rotated_qkv, data.block, log_sums);
    x1 = data.block.x.to(at::kDouble).narrow(1, length - rows, rows) +
         at::linear(read, parameters[2], parameters[3]);
  }

  std::vector<at::Tensor> parameters;
  at::Tensor normed, log_sums, read, x1;

 private:
  static at::Tensor rotated(const at::Tensor& x, const PreNormAttentionData& data) {
    const int64_t half = x.size(-1) / 2, streams = x.size(2) / data.cosines.size(0);
    const at::Tensor cosines = data.cosines.repeat({streams, 1}), sines = data.sines.repeat({streams, 1});
    const at::Tensor a = x.narrow(-1, 0, half), b = x.narrow(-1, half, half);
    return at::cat({a * cosines - b * sines, b * cosines + a * sines}, -1);
  }
};

inline void expect_pre_norm_attention_is_the_reference(const FusedBlockCase& tried, at::Device device) {
  const PreNormAttentionData data(tried, device);
  const PreNormAttentionReference reference(data);
  at::Tensor x1[2];
  for (at::Tensor& found : x1) {
    found = data.block.poisoned(data.block.dy.sizes());
    kernels::pre_norm_attention(tried.shape, data.attention(), FusedBlockData::of(data.block.x),
                                FusedBlockData::of(found), stream_of(device));
  }
  EXPECT_LT(error_of(data.block.read, reference.read), value_tolerance(tried));
  EXPECT_LT((data.block.log_sums - reference.log_sums).abs().max().item<double>(), tried.steep() ? 1.0 : 0.1);
  EXPECT_LT(error_of(x1[0], reference.x1), value_tolerance(tried));
  EXPECT_TRUE(at::equal(x1[0], x1[1])) << "not the same on repeat";
}

inline void expect_swiglu_is_the_reference(int64_t rows, int width, at::Device device) {
  constexpr double kValueTolerance = 6e-3, kGradientTolerance = 1e-2;
  const auto random = [&](at::IntArrayRef sizes, double deviation) {
    return at::randn(sizes, at::device(device)).mul_(deviation).to(at::kBFloat16);
  };
  const auto poisoned = [&](at::IntArrayRef sizes, at::ScalarType type) {
    return at::full(sizes, std::numeric_limits<float>::quiet_NaN(), at::device(device).dtype(type));
  };
  const auto& of = FusedBlockData::of;
  const int64_t inner = 4 * width;
  const double deviation = 1 / std::sqrt(static_cast<double>(width));
  const at::Tensor w1 = random({inner, width}, deviation), w2 = random({inner, width}, deviation),
                   w3 = random({width, inner}, deviation), normed = random({rows, width}, 1),
                   x1 = random({rows, width}, 1), dy = random({rows, width}, 1);

  std::vector<at::Tensor> inputs;
  for (const at::Tensor& input : {normed, w1, w2, w3}) {
    inputs.push_back(input.to(at::kDouble).requires_grad_());
  }
  const at::Tensor hidden = at::silu(at::linear(inputs[0], inputs[1])) * at::linear(inputs[0], inputs[2]);
  const at::Tensor expected = x1.to(at::kDouble) + at::linear(hidden, inputs[3]);
  const auto gradients = torch::autograd::grad({expected}, inputs, {dy.to(at::kDouble)});

  const kernels::SwigluWeights weights = {of(w1), of(w2), of(w3)};
  const auto places = kernels::SwigluGradients::of(width);
  at::Tensor y[2], dnormed[2], sums[2];
  for (int repeat = 0; repeat < 2; ++repeat) {
    y[repeat] = poisoned({rows, width}, at::kBFloat16);
    kernels::swiglu(rows, width, weights, of(normed), of(x1), of(y[repeat]), stream_of(device));
    dnormed[repeat] = poisoned({kernels::swiglu_backward_terms(width), rows, width}, at::kBFloat16);
    const at::Tensor parts =
        poisoned({kernels::swiglu_backward_parts(rows, width), places.total}, at::kFloat);
    kernels::swiglu_backward(rows, width, weights, of(normed), of(dy), of(dnormed[repeat]),
                             parts.data_ptr<float>(), stream_of(device));
    sums[repeat] = sum_of(parts);
  }
  EXPECT_LT(error_of(y[0], expected), kValueTolerance);
  EXPECT_LT(error_of(dnormed[0].to(at::kDouble).sum(0), gradients[0]), kGradientTolerance);
  EXPECT_LT(error_of(sums[0].narrow(0, places.w1, w1.numel()), gradients[1]), kGradientTolerance) << "w1";
  EXPECT_LT(error_of(sums[0].narrow(0, places.w2, w2.numel()), gradients[2]), kGradientTolerance) << "w2";
  EXPECT_LT(error_of(sums[0].narrow(0, places.w3, w3.numel()), gradients[3]), kGradientTolerance) << "w3";
  EXPECT_TRUE(at::equal(y[0], y[1])) << "not the same on repeat";
  EXPECT_TRUE(at::equal(dnormed[0], dnormed[1])) << "not the same on repeat";
  EXPECT_TRUE(at::equal(sums[0], sums[1])) << "not the same on repeat";
}

}  // namespace adtrain::testing
