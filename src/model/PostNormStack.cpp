#include "model/PostNormStack.h"

#include <cmath>

#include <ATen/ATen.h>
#include <fmt/format.h>

namespace adtrain {
namespace {

constexpr double kSmallDeviation = 0.02;
constexpr int64_t kTokenTypes = 3;

/// As torch.nn.MultiheadAttention starts its input projection: Xavier uniform, bias 0.
Linear input_projection(ParameterFactory& factory, const std::string& name, int64_t width) {
  Linear linear;
  linear.weight =
      factory.uniform(name + "_weight", {3 * width, width}, std::sqrt(6.0 / static_cast<double>(4 * width)));
  linear.bias = factory.constant(name + "_bias", {3 * width}, 0);
  return linear;
}

/// As torch.nn.MultiheadAttention starts its output projection: default weight, bias 0.
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

at::Tensor PostNormBlock::operator()(const at::Tensor& x, const Streams& streams, int64_t rows,
                                     const DropoutRates& rates) const {
  const int64_t tokens = x.size(1);
  const at::Tensor qkv =
      in_proj_(x).view({x.size(0), tokens, 3, heads_, head_size_}).permute({2, 0, 3, 1, 4});
  const at::Tensor read = attend(qkv, rows, streams, {}, rates.attention);

  const at::Tensor y = norm1_(last_of(x, 1, rows) + dropout(out_proj_(read), rates.hidden));
  return norm2_(y + dropout(linear2_(dropout(at::gelu(linear1_(y)), rates.hidden)), rates.hidden));
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
          factory.normal("pos_embedding", {1, options.n_transit, options.tf_n_embd}, kSmallDeviation)) {
  for (int64_t layer = 0; layer < options.tf_n_layer; ++layer) {
    layers.emplace_back(factory, fmt::format("transformer_encoder.layers.{}", layer), options);
  }
  pred_action = default_linear(factory, "pred_action", options.tf_n_embd, shape.num_actions);
}

at::Tensor PostNormStack::encode(at::Tensor x, const Streams& streams, int64_t rows,
                                 const DropoutRates& rates) const {
  for (const PostNormBlock& layer : layers) {
    const bool last = &layer == &layers.back();
    x = layer(x, streams, last ? rows : x.size(1), rates);
  }
  return x;
}

}  // namespace adtrain
