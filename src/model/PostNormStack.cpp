#include "model/PostNormStack.h"

#include <cmath>
#include <memory>
#include <utility>

#include <ATen/ATen.h>
#include <fmt/format.h>

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
  linear.quantised = factory.linear_weight(name + "_weight");
  linear.bias = factory.constant(name + "_bias", {3 * width}, 0);
  return linear;
}

/// Initialised as torch.nn.MultiheadAttention's output projection: default weight, bias 0.
Linear output_projection(ParameterFactory& factory, const std::string& name, int64_t width) {
  Linear linear;
  linear.weight =
      factory.uniform(name + ".weight", {width, width}, 1.0 / std::sqrt(static_cast<double>(width)));
  linear.quantised = factory.linear_weight(name + ".weight");
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

at::Tensor PostNormBlock::in_pass(const at::Tensor& x, const Pass& pass, const BlockPlace& place) const {
  if (!pass.own) return by_plain_operators(x, pass, place);
  const kernels::BlockPass own = pass.own->running(place.run);
  const auto kernels_of_plan = pass.blocks == kernels::KernelPlan::Blocks::kWhole
                                   ? kernels::fused_post_norm_block
                                   : kernels::post_norm_block_by_sublayers;
  return kernels_of_plan(x, parameters(), pass.streams, place.rows, place.number, own);
}

at::Tensor PostNormBlock::by_plain_operators(const at::Tensor& x, const Pass& pass,
                                             const BlockPlace& place) const {
  const int64_t rows = place.rows;
  const double rate = pass.rates.hidden;
  const at::Tensor read = attend(heads_of(x), rows, pass.streams, {}, pass.rates.attention);
  const at::Tensor y = normed_sum(norm1_, last_of(x, 1, rows), out_proj_, read, rate);
  const auto with_mlp = [rate, up = linear1_, down = linear2_, norm = norm2_](const at::Tensor& sum, auto) {
    return normed_sum(norm, sum, down, dropped_gelu(up, sum, rate), rate);
  };
  if (!pass.recomputation.of_mlp()) return with_mlp(y, place.run);
  return kernels::recomputed(y, parameters_of(linear1_, linear2_, norm2_), pass.recomputation.numbers,
                             with_mlp);
}

at::Tensor PostNormBlock::heads_of(const at::Tensor& x) const {
  return in_proj_(x).view({x.size(0), x.size(1), 3, heads_, head_size_}).permute({2, 0, 3, 1, 4});
}

at::Tensor PostNormBlock::newest(const at::Tensor& x, RollingKeys& keys, const NewestTokens& tokens) const {
  return reading(x, keys.attending(tokens));
}

at::Tensor PostNormBlock::reading(const at::Tensor& x, const Attend& attend) const {
  constexpr double kNoDropout = 0;
  const at::Tensor qkv = heads_of(x);
  const at::Tensor read = attend(qkv[0], qkv[1], qkv[2]);
  const at::Tensor y = normed_sum(norm1_, x, out_proj_, read, kNoDropout);
  return normed_sum(norm2_, y, linear2_, dropped_gelu(linear1_, y, kNoDropout), kNoDropout);
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

at::Tensor PostNormStack::encode(const at::Tensor& x, const TokenStreams& streams, int64_t rows,
                                 const DropoutRates& rates, const kernels::KernelPlan& plan,
                                 const BlockRecomputation& recomputation,
                                 MainGradients* main_gradients) const {
  return through(x, streams, rows, 0, std::ssize(layers), rates, plan, recomputation, main_gradients);
}

at::Tensor PostNormStack::through(const at::Tensor& input, const TokenStreams& streams, int64_t rows,
                                  int64_t first, int64_t end, const DropoutRates& rates,
                                  const kernels::KernelPlan& plan, const BlockRecomputation& recomputation,
                                  MainGradients* main_gradients) const {
  at::Tensor x = input;
  PostNormBlock::Pass of_all = {streams, rates, plan.blocks(), recomputation, {}};
  if (plan.blocks() != kernels::KernelPlan::Blocks::kLibrary) {
    of_all.own.emplace(x, heads_, rates.attention, rates.hidden, plan.own_attention(), main_gradients);
    of_all.own->recomputes_mlp = recomputation.of_mlp();
  }
  const auto pass = std::make_shared<const PostNormBlock::Pass>(std::move(of_all));
  for (int64_t layer = first; layer < end; ++layer) {
    const bool last = layer + 1 == std::ssize(layers);
    const BlockPlace place = {.number = layer, .rows = last ? rows : x.size(1)};
    x = block_output(layers[static_cast<size_t>(layer)], x, pass, place, recomputation);
  }
  return x;
}

}  // namespace adtrain
