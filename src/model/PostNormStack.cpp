#include "model/PostNormStack.h"

#include <cmath>
#include <optional>

#include <ATen/ATen.h>
#include <fmt/format.h>

#include "kernels/BlockPass.h"
#include "kernels/block/post_norm/FusedPostNorm.h"
#include "kernels/block/post_norm/PostNormSublayers.h"

namespace adtrain {
namespace {

constexpr double kSmallDeviation = 0.02;
constexpr int64_t kTokenTypes = 3;

/// Initialised as torch.nn.MultiheadAttention's input projection: Xavier uniform, bias 0.
Linear input_projection(ParameterFactory& factory, const std::string& name, int64_t width) {
  Linear linear;
  linear.weight =
      factory.uniform(name + "_weight", {3 * width, width}, std::sqrt(6.0 / static_cast<double>(4 * width)));
  linear.bias = factory.constant(name + "_bias", {3 * width}, 0);
  return linear;
}

/// Initialised as torch.nn.MultiheadAttention's output projection: default weight, bias 0.
Linear output_projection(ParameterFactory& factory, const std::string& name, int64_t width) {
  Linear linear;
  linear.weight =
      factory.uniform(name + ".weight", {width, width}, 1.0 / std::sqrt(static_cast<double>(width)));
  linear.bias = factory.constant(name + ".bias", {width}, 0);
  return linear;
}

}  // namespace

PostNormBlock::PostNormBlock(ParameterFactory& factory, const std::string& name, const ModelOptions& options)
    : heads_(options.tf_n_head),
      head_size_(options.head_size()),
      in_proj_(input_projection(factory, name + ".self_attn.in_proj", options.tf_n_embd)),
      out_proj_(output_projection(factory, name + ".self_attn.out_proj", options.tf_n_embd)),
      norm1_(layer_norm(factory, name + ".norm1", options.tf_n_embd)),
      linear1_(default_linear(factory, name + ".linear1", options.tf_n_embd, options.inner_width())),
      linear2_(default_linear(factory, name + ".linear2", options.inner_width(), options.tf_n_embd)),
      norm2_(layer_norm(factory, name + ".norm2", options.tf_n_embd)) {}

at::Tensor PostNormBlock::operator()(const at::Tensor& x, const TokenStreams& streams, int64_t rows,
                                     const DropoutRates& rates) const {
  const int64_t tokens = x.size(1);
  const at::Tensor qkv =
      in_proj_(x).view({x.size(0), tokens, 3, heads_, head_size_}).permute({2, 0, 3, 1, 4});
  const at::Tensor read = attend(qkv, rows, streams, {}, rates.attention);

  const at::Tensor y = normed_sum(norm1_, last_of(x, 1, rows), out_proj_, read, rates.hidden);
  return normed_sum(norm2_, y, linear2_, dropped_gelu(linear1_, y, rates.hidden), rates.hidden);
}

std::vector<at::Tensor> PostNormBlock::parameters() const {
  return {in_proj_.weight, in_proj_.bias, out_proj_.weight, out_proj_.bias, norm1_.weight, norm1_.bias,
          linear1_.weight, linear1_.bias, linear2_.weight,  linear2_.bias,  norm2_.weight, norm2_.bias};
}

PostNormStack::PostNormStack(ParameterFactory& factory, const ModelOptions& options, const ModelShape& shape)
    : pred_token_type(default_linear(factory, "pred_token_type", options.tf_n_embd, kTokenTypes)),
      compress_start_token(
          factory.normal("compress_start_token", {1, 1, options.tf_n_embd}, kSmallDeviation)),
      compress_end_token(factory.normal("compress_end_token", {1, 1, options.tf_n_embd}, kSmallDeviation)),
      embed_context(default_linear(factory, "embed_context", shape.transition_features(), options.tf_n_embd)),
      token_type_embedding(embedding(factory, "token_type_embedding", kTokenTypes, options.tf_n_embd)),
      embed_query_state(embedding(factory, "embed_query_state", shape.states(), options.tf_n_embd)),
      pos_embedding(
          factory.normal("pos_embedding", {1, options.n_transit, options.tf_n_embd}, kSmallDeviation)),
      heads_(options.tf_n_head) {
  for (int64_t layer = 0; layer < options.tf_n_layer; ++layer) {
    layers.emplace_back(factory, fmt::format("transformer_encoder.layers.{}", layer), options);
  }
  pred_action = default_linear(factory, "pred_action", options.tf_n_embd, shape.num_actions);
}

at::Tensor PostNormStack::encode(at::Tensor x, const TokenStreams& streams, int64_t rows,
                                 const DropoutRates& rates, const kernels::KernelPlan& plan,
                                 MainGradients* main_gradients) const {
  std::optional<kernels::BlockPass> pass;
  if (plan.blocks() != kernels::KernelPlan::Blocks::kLibrary) {
    pass.emplace(x, heads_, rates.attention, rates.hidden, plan.own_attention(), main_gradients);
  }
  for (size_t layer = 0; layer < layers.size(); ++layer) {
    const int64_t rows_out = layer + 1 == layers.size() ? rows : x.size(1);
    const auto number = static_cast<int64_t>(layer);
    if (plan.whole_blocks()) {
      x = kernels::fused_post_norm_block(x, layers[layer].parameters(), streams, rows_out, number, *pass);
    } else if (plan.by_sublayers()) {
      x = kernels::post_norm_block_by_sublayers(x, layers[layer].parameters(), streams, rows_out, number,
                                                *pass);
    } else {
      x = layers[layer](x, streams, rows_out, rates);
    }
  }
  return x;
}

}  // namespace adtrain
