#pragma once

#include <ATen/ATen.h>
#include <gtest/gtest.h>
#include <torch/csrc/autograd/autograd.h>

#include "kernels/FusedBlockCase.h"
#include "kernels/FusedBlockChecks.h"
#include "kernels/block/pre_norm/PreNormAttention.h"
#include "kernels/block/swiglu/Swiglu.h"
#include "kernels/norm/NormKernels.h"

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
    const kernels::DropoutMasks keep = block.keep();
    return {FusedBlockData::of(normed),
            FusedBlockData::of(in_proj_weight),
            FusedBlockData::of(in_proj_bias),
            FusedBlockData::of(block.out_proj_weight),
            FusedBlockData::of(block.out_proj_bias),
            cosines.data_ptr<float>(),
            sines.data_ptr<float>(),
            keep.attention,
            keep.attention_scale,
            FusedBlockData::of(block.attention_output),
            block.lse.data_ptr<float>()};
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
    const auto& [sequences, tokens, rows, width, heads, causal, queries, no_first] = data.block.tried().shape;
    for (const at::Tensor* parameter :
         {&data.in_proj_weight, &data.in_proj_bias, &data.block.out_proj_weight, &data.block.out_proj_bias}) {
      parameters.push_back(parameter->to(at::kDouble).requires_grad_());
    }
    normed = data.normed.to(at::kDouble).requires_grad_();
    const int64_t length = tokens + queries;
    const at::Tensor projected = at::linear(normed, parameters[0], parameters[1]);
    attention_output = attention_of(rotated_by_heads(projected, data), data.block, lse);
    x1 = data.block.x.to(at::kDouble).narrow(1, length - rows, rows) +
         at::linear(attention_output, parameters[2], parameters[3]);
  }

  /// in_proj's output (S, tokens + queries, 3 D) -> queries and keys that have turned, and values: (3, S, H,
  /// tokens + queries, head size).
  static at::Tensor rotated_by_heads(const at::Tensor& projected, const PreNormAttentionData& data) {
    const kernels::BlockShape& shape = data.block.tried().shape;
    const at::Tensor qkv =
        projected.view({shape.sequences, shape.length(), shape.heads, 3, shape.width / shape.heads})
            .permute({3, 0, 2, 1, 4});
    return at::stack({rotated(qkv[0], data), rotated(qkv[1], data), qkv[2]});
  }

  /// Gradients for `dx1` of n1, then of the parameters in order.
  std::vector<at::Tensor> backward(const at::Tensor& dx1) const {
    torch::autograd::variable_list inputs = {normed};
    inputs.insert(inputs.end(), parameters.begin(), parameters.end());
    return torch::autograd::grad({x1}, inputs, {dx1.to(at::kDouble)});
  }

  std::vector<at::Tensor> parameters;
  at::Tensor normed, lse, attention_output, x1;

 private:
  static at::Tensor rotated(const at::Tensor& x, const PreNormAttentionData& data) {
    const int64_t half = x.size(-1) / 2, tokens = data.cosines.size(0), queries = x.size(2) - tokens;
    const auto of_both_streams = [&](const at::Tensor& angles) {
      return at::cat({angles, angles.narrow(0, tokens - queries, queries)});
    };
    const at::Tensor cosines = of_both_streams(data.cosines), sines = of_both_streams(data.sines);
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
  EXPECT_LT(error_of(data.block.attention_output, reference.attention_output), value_tolerance(tried));
  EXPECT_LT((data.block.lse - reference.lse).abs().max().item<double>(), tried.steep() ? 1.0 : 0.1);
  EXPECT_LT(error_of(x1[0], reference.x1), value_tolerance(tried));
  EXPECT_TRUE(at::equal(x1[0], x1[1])) << "not the same on repeat";
}

inline void expect_pre_norm_attention_backward_is_the_reference(const FusedBlockCase& tried,
                                                                at::Device device) {
  const PreNormAttentionData data(tried, device);
  const PreNormAttentionReference reference(data);
  const at::Tensor& dx1 = data.block.dy;
  const auto expected = reference.backward(dx1);
  kernels::pre_norm_attention(tried.shape, data.attention(), FusedBlockData::of(data.block.x),
                              FusedBlockData::of(at::empty_like(dx1)), stream_of(device));

  const auto places = kernels::PreNormAttentionGradients::of(tried.shape.width);
  Launched launched;
  for (int repeat = 0; repeat < 2; ++repeat) {
    launched.of_input[repeat] = data.block.poisoned(data.normed.sizes());
    const at::Tensor parts = data.block.poisoned(
        {kernels::pre_norm_attention_backward_parts(tried.shape), places.total}, at::kFloat);
    const at::Tensor carried = data.block.poisoned({kernels::attention_backward_carried(tried.shape)});
    const PartsAhead ahead(device);
    kernels::pre_norm_attention_backward(
        tried.shape, data.attention(), FusedBlockData::of(dx1), FusedBlockData::of(launched.of_input[repeat]),
        parts.data_ptr<float>(), FusedBlockData::of(carried), ahead.unadded(), stream_of(device));
    ahead.expect_added();
    launched.sums[repeat] = sum_of(parts);
  }
  launched.expect(expected[0], &expected[1],
                  {{"in_proj_weight", places.in_proj_weight},
                   {"in_proj_bias", places.in_proj_bias},
                   {"out_proj_weight", places.out_proj_weight},
                   {"out_proj_bias", places.out_proj_bias}},
                  // Nothing that is exact comes to these gradients past the products, as a residual would.
                  1.5 * gradient_tolerance(tried));
}

/// RMSNorm with dropout, of (sequences, length, width): its gradient comes in so many terms, and the last
/// `residual_rows` of each sequence get some past the norm.
struct RmsNormCase {
  int sequences, length, width, terms, residual_rows;
  double dropout;
};

inline void expect_rms_norm_is_the_reference(const RmsNormCase& tried, at::Device device) {
  constexpr double kValueTolerance = 4e-3, kEpsilon = 1e-5;
  const auto random = [&](at::IntArrayRef sizes) {
    return at::randn(sizes, at::device(device)).to(at::kBFloat16);
  };
  const at::Tensor x = random({tried.sequences, tried.length, tried.width}), weight = random({tried.width}),
                   dy = random({tried.terms, tried.sequences, tried.length, tried.width}),
                   residual = random({tried.sequences, tried.residual_rows, tried.width});
  const bool drops = tried.dropout > 0;
  const float scale = drops ? static_cast<float>(1 / (1 - tried.dropout)) : 1.0f;
  const at::Tensor kept = at::rand(x.sizes(), at::device(device)).ge(tried.dropout);
  const at::Tensor places = at::arange(kernels::kVectorWidth, kept.options().dtype(at::kByte));
  const at::Tensor bytes =
      kept.to(at::kByte).view({-1, kernels::kVectorWidth}).bitwise_left_shift(places).sum(-1).to(at::kByte);

  const at::Tensor input = x.to(at::kDouble).requires_grad_(), by = weight.to(at::kDouble).requires_grad_();
  const at::Tensor dropped = drops ? input * kept * static_cast<double>(scale) : input;
  const at::Tensor expected = dropped * at::rsqrt(dropped.square().mean(-1, true) + kEpsilon) * by;
  const auto gradients = torch::autograd::grad({expected}, {input, by}, {dy.to(at::kDouble).sum(0)});
  const at::Tensor of_x =
      at::cat({gradients[0].narrow(1, 0, tried.length - tried.residual_rows),
               gradients[0].narrow(1, tried.length - tried.residual_rows, tried.residual_rows) +
                   residual.to(at::kDouble)},
              1);

  const auto vectors_of = [](const at::Tensor& tensor) {
    return static_cast<kernels::Vector*>(tensor.data_ptr());
  };
  const kernels::MatrixShape shape = {int64_t{tried.sequences} * tried.length, tried.width,
                                      kernels::ShortType::kBFloat16};
  const kernels::MatrixDropout dropout = {drops ? bytes.const_data_ptr<uint8_t>() : nullptr, scale};
  constexpr int kProcessors = 3;
  const int stride = (tried.width + 63) / 64 * 64;
  Launched launched;
  for (int repeat = 0; repeat < 2; ++repeat) {
    const at::Tensor y = at::full_like(x, NAN), d_x = at::full_like(x, NAN);
    kernels::input_norm_forward({.shape = shape,
                                 .x = vectors_of(x),
                                 .weight = vectors_of(weight),
                                 .norm_bias = nullptr,
                                 .epsilon = kEpsilon,
                                 .dropout = dropout,
                                 .y = vectors_of(y),
                                 .statistics = nullptr},
                                stream_of(device));
    EXPECT_LT(error_of(y, expected), kValueTolerance);
    const at::Tensor parts =
        at::full({kernels::input_norm_backward_parts(shape, /*more_sums=*/false, kProcessors), stride}, NAN,
                 at::device(device).dtype(at::kFloat));
    kernels::input_norm_backward({.shape = shape,
                                  .d_y = vectors_of(dy),
                                  .terms = tried.terms,
                                  .x = vectors_of(x),
                                  .weight = vectors_of(weight),
                                  .norm_bias = nullptr,
                                  .epsilon = kEpsilon,
                                  .statistics = nullptr,
                                  .dropout = dropout,
                                  .residual = vectors_of(residual),
                                  .length = tried.length,
                                  .residual_rows = tried.residual_rows,
                                  .d_x = vectors_of(d_x),
                                  .parts = parts.data_ptr<float>(),
                                  .part_count = static_cast<int>(parts.size(0)),
                                  .stride = stride},
                                 stream_of(device));
    launched.of_input[repeat] = d_x;
    launched.sums[repeat] = sum_of(parts);
  }
  launched.expect(of_x, &gradients[1], {{"weight", 0}}, kValueTolerance);
}

inline void expect_swiglu_is_the_reference(int64_t rows, int width, at::Device device) {
  constexpr double kValueTolerance = 6e-3;
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
