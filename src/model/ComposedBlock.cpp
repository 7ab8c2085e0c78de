#include "model/ComposedBlock.h"

#include <array>
#include <vector>

#include <ATen/ATen.h>

#include "kernels/activation/Activation.h"
#include "kernels/attention/LibraryAttention.h"
#include "kernels/attention/StreamedAttention.h"
#include "kernels/attention/cudnn/CudnnAttention.h"
#include "kernels/block/pre_norm/PreNormSublayers.h"
#include "kernels/dropout/Dropout.h"
#include "kernels/gemm/Gemm.h"
#include "kernels/norm/HeadNorms.h"
#include "kernels/norm/Norm.h"
#include "kernels/quantised/WeightProduct.h"

namespace adtrain {
namespace {

/// qkv (3, B, heads, tokens, head size) with its queries and keys rotated.
at::Tensor rotated_heads(const at::Tensor& qkv, const Rotary& rotary) {
  const std::vector<at::Tensor> parts = qkv.split_with_sizes({2, 1});
  return at::cat({kernels::rotated(parts[0], rotary), parts[1]});
}

// Products on a GPU in 16 bit, without gradients.

at::Tensor normed(const at::Tensor& x, const kernels::NormWeights& norm) {
  return kernels::normed_input(x, norm, kNormEpsilon, /*kept=*/{}).y;
}

at::Tensor product_of_normed(const Linear& linear, const kernels::NormWeights& norm,
                             const at::Tensor& norm_products, const at::Tensor& x) {
  if (linear.is_quantised())
    return (*linear.quantised)(x, linear.bias, {.norm = norm, .norm_products = norm_products});
  return kernels::product(normed(x, norm), linear.weight, linear.bias, kernels::Autotuning::kNo);
}

at::Tensor gelu_of_normed(const Linear& linear, const kernels::NormWeights& norm,
                          const at::Tensor& norm_products, const at::Tensor& x) {
  if (linear.is_quantised())
    return (*linear.quantised)(x, linear.bias, {.norm = norm, .norm_products = norm_products, .gelu = true});
  const at::Tensor product = kernels::product(normed(x, norm), linear.weight, {}, kernels::Autotuning::kNo);
  return linear.bias.defined() ? kernels::biased_gelu(product, linear.bias, /*kept=*/{}) : at::gelu(product);
}

at::Tensor added(const at::Tensor& sum, const Linear& linear, const at::Tensor& x) {
  if (linear.is_quantised()) return (*linear.quantised)(x, linear.bias, {.sum = sum});
  return kernels::sum_with_product(sum, x, linear.weight, linear.bias, kernels::Autotuning::kNo);
}

}  // namespace

ChosenNorm ChosenNorm::of(ParameterFactory& factory, const std::string& name, int64_t width, NormKind kind) {
  if (kind == NormKind::kRms) return {rms_norm(factory, name, width).weight, {}};
  const LayerNorm norm = layer_norm(factory, name, width);
  return {norm.weight, norm.bias};
}

at::Tensor ChosenNorm::operator()(const at::Tensor& x, double dropout_rate) const {
  if (!bias.defined()) return RmsNorm{weight}(x, dropout_rate);
  return LayerNorm{weight, bias}(kernels::dropout(x, dropout_rate));
}

ComposedDropout ComposedDropout::of(TransformerBlock preset, const DropoutRates& rates) {
  ComposedDropout dropout;
  dropout.attention_weights = rates.attention;
  switch (preset) {
    case TransformerBlock::kXland:
      dropout.tokens = rates.hidden;
      break;
    case TransformerBlock::kVintix:
      dropout.attention_output = rates.hidden;
      break;
    default:
      dropout.norm_input = rates.hidden;
  }
  return dropout;
}

ComposedBlock::ComposedBlock(ParameterFactory& factory, const std::string& name, const ModelOptions& options,
                             const Initialisation& initial)
    : heads_(options.tf_n_head), head_size_(options.head_size()) {
  const BlockPieces pieces = options.block_pieces();
  const int64_t width = options.tf_n_embd, inner = options.inner_width();
  const bool in_attention = pieces.bias != BiasPlaces::kNone, in_mlp = pieces.bias == BiasPlaces::kAll;
  norm_1_ = ChosenNorm::of(factory, name + ".norm_1", width, pieces.norm);
  qkv_ = initial.linear(factory, name + ".attention.qkv", width, 3 * width, in_attention);
  if (pieces.qk_norm == Choice::kOn) {
    query_norm_ = ChosenNorm::of(factory, name + ".attention.query_norm", head_size_, pieces.norm);
    key_norm_ = ChosenNorm::of(factory, name + ".attention.key_norm", head_size_, pieces.norm);
  }
  out_ = initial.residual_linear(factory, name + ".attention.out", width, width, in_attention);
  norm_2_ = ChosenNorm::of(factory, name + ".norm_2", width, pieces.norm);
  if (pieces.mlp == MlpKind::kSwiglu)
    gate_ = initial.linear(factory, name + ".mlp.gate", width, inner, in_mlp);
  up_ = initial.linear(factory, name + ".mlp.up", width, inner, in_mlp);
  down_ = initial.residual_linear(factory, name + ".mlp.down", inner, width, in_mlp);
}

std::vector<at::Tensor> ComposedBlock::parameters() const {
  return parameters_of(norm_1_, qkv_, query_norm_, key_norm_, out_, norm_2_, gate_, up_, down_);
}

at::Tensor ComposedBlock::in_pass(const at::Tensor& x, const ComposedPass& pass,
                                  const BlockPlace& place) const {
  if (pass.sublayers) return by_sublayers(x, pass, place);
  if (pass.around_products) {
    return around_products(x, place.rows, /*norm_products=*/{}, [&](const at::Tensor& projected) {
      return attention(projected, pass.order, place.rows, /*dropout_rate=*/0, /*main_gradients=*/nullptr);
    });
  }
  const ComposedDropout& dropout = pass.dropout;
  const at::Tensor projected = qkv_(norm_1_(x, dropout.norm_input));
  const at::Tensor read = attention(projected, pass.order, place.rows, dropout.attention_weights, nullptr);
  const at::Tensor y = last_of(x, 1, place.rows) + kernels::dropout(out_(read), dropout.attention_output);
  return y + mlp()(norm_2_(y, dropout.norm_input), place.run, pass.recomputes_mlp);
}

at::Tensor ComposedBlock::by_sublayers(const at::Tensor& x, const ComposedPass& pass,
                                       const BlockPlace& place) const {
  const ComposedDropout& dropout = pass.dropout;
  const kernels::BlockPass of_run = pass.sublayers->running(place.run);
  const kernels::PreNormPieces pieces = {.layer_norm = norm_1_.bias.defined(),
                                         .gelu = !gate_.weight.defined(),
                                         .drops_attention_output = dropout.attention_output > 0};
  const Linear without_bias = {qkv_.weight, {}};
  const bool attention_sums_bias = pass.order.kernels == AttentionKernels::kStreamed &&
                                   !pass.order.rotary.cosines.defined() && !query_norm_.weight.defined() &&
                                   pass.order.streams.queries == 0;
  const at::Tensor bias_of_attention = attention_sums_bias ? qkv_.bias : at::Tensor();
  auto [projected, residual] =
      kernels::pre_norm_before_attention(x, parameters_of(norm_1_, attention_sums_bias ? without_bias : qkv_),
                                         pieces, place.rows, place.number, of_run, bias_of_attention);
  const at::Tensor read = attention(projected, pass.order, place.rows, dropout.attention_weights,
                                    of_run.main_gradients, bias_of_attention);
  projected.reset();  // without gradients nobody else holds it
  return kernels::pre_norm_after_attention(read, residual, parameters_of(out_, norm_2_, gate_, up_, down_),
                                           pieces, place.number, of_run);
}

template <class OfProjected>
at::Tensor ComposedBlock::around_products(const at::Tensor& x, int64_t rows,
                                          const NormProducts& norm_products, OfProjected&& attend) const {
  // Nested, so that the projection is freed before the MLP.
  const at::Tensor sum =
      added(last_of(x, 1, rows), out_,
            attend(product_of_normed(qkv_, norm_1_.weights(), norm_products.attention, x)));
  const at::Tensor inner = gate_.weight.defined()
                               ? mlp().inner(normed(sum, norm_2_.weights()))
                               : gelu_of_normed(up_, norm_2_.weights(), norm_products.mlp, sum);
  return added(sum, down_, inner);
}

at::Tensor ComposedBlock::newest(const at::Tensor& x, RollingKeys& keys, const NewestTokens& tokens) const {
  if (!tokens.around_products) return reading(x, tokens.rotary, keys.attending(tokens));
  return around_products(
      x, x.size(1), keys.norm_products([&] { return norm_products(x); }),
      [&](const at::Tensor& projected) { return newest_attention(projected, keys, tokens); });
}

std::optional<kernels::StackableBlock> ComposedBlock::stackable(const at::Tensor& x,
                                                                RollingKeys& keys) const {
  if (gate_.weight.defined()) return std::nullopt;
  kernels::StackableBlock block = {.matrices = {},
                                   .biases = {},
                                   .norms = {norm_1_.weights(), norm_2_.weights()},
                                   .norm_products = {},
                                   .head_norms = {query_norm_.weights(), key_norm_.weights()},
                                   .ring = keys.ring()};
  const std::array<const Linear*, 4> linears = {&qkv_, &out_, &up_, &down_};
  for (size_t i = 0; i < linears.size(); ++i) {
    const Linear& linear = *linears[i];
    if (!linear.is_quantised() || !linear.quantised->is_weight_only(x.scalar_type())) return std::nullopt;
    block.matrices[i] = *linear.quantised->matrix;
    block.biases[i] = linear.bias;
  }
  const NormProducts& products = keys.norm_products([&] { return norm_products(x); });
  block.norm_products = {products.attention, products.mlp};
  return block;
}

NormProducts ComposedBlock::norm_products(const at::Tensor& x) const {
  const at::Tensor rows = x.flatten(0, 1);
  const auto products = [&rows](const Linear& linear, const ChosenNorm& norm) {
    const bool used = linear.is_quantised() && linear.quantised->is_weight_only(rows.scalar_type());
    return used ? kernels::norm_products(rows, *linear.quantised->matrix, norm.weights()) : at::Tensor();
  };
  return {products(qkv_, norm_1_), gate_.weight.defined() ? at::Tensor() : products(up_, norm_2_)};
}

at::Tensor ComposedBlock::reading(const at::Tensor& x, const Rotary& rotary, const Attend& attend) const {
  const at::Tensor y = x + out_(attended(heads_of(qkv_(norm_1_(x))), rotary, attend));
  return y + mlp()(norm_2_(y), kernels::PartRun::kForValues, /*recomputes=*/false);
}

at::Tensor ComposedBlock::newest_attention(const at::Tensor& projected, RollingKeys& keys,
                                           const NewestTokens& tokens) const {
  if (query_norm_.weight.defined() && tokens.by_kernel && !tokens.rotary.cosines.defined()) {
    const at::Tensor heads = plain_heads_of(projected);
    return keys.attend(heads[0], heads[1], heads[2], tokens, {query_norm_.weights(), key_norm_.weights()});
  }
  return attended(heads_of(projected), tokens.rotary, keys.attending(tokens));
}

at::Tensor ComposedBlock::attended(const at::Tensor& qkv, const Rotary& rotary, const Attend& attend) {
  at::Tensor query = qkv[0], key = qkv[1];
  if (rotary.cosines.defined()) {
    query = kernels::rotated(query, rotary);
    key = kernels::rotated(key, rotary);
  }
  return attend(query, key, qkv[2]);
}

at::Tensor ComposedBlock::heads_of(const at::Tensor& projected) const {
  const at::Tensor qkv = plain_heads_of(projected);
  if (!query_norm_.weight.defined()) return qkv;
  const std::vector<at::Tensor> parts = qkv.unbind();
  return at::stack({query_norm_(parts[0]), key_norm_(parts[1]), parts[2]});
}

at::Tensor ComposedBlock::plain_heads_of(const at::Tensor& projected) const {
  return projected.view({projected.size(0), projected.size(1), 3, heads_, head_size_})
      .permute({2, 0, 3, 1, 4});
}

at::Tensor ComposedBlock::attention(const at::Tensor& projected, const TokenOrder& order, int64_t rows,
                                    double dropout_rate, MainGradients* main_gradients,
                                    const at::Tensor& projection_bias) const {
  if (order.kernels == AttentionKernels::kStreamed && !order.rotary.cosines.defined()) {
    const kernels::HeadNorms norms = {query_norm_.weights(), key_norm_.weights()};
    return kernels::streamed_attention(plain_heads_of(projected), rows, order.penalty, dropout_rate, norms,
                                       main_gradients, order.streams, projection_bias);
  }
  const at::Tensor qkv = heads_of(projected);
  if (order.kernels != AttentionKernels::kOperators) {
    const at::Tensor ordered = order.rotary.cosines.defined() ? rotated_heads(qkv, order.rotary) : qkv;
    if (order.kernels == AttentionKernels::kStreamed)
      return kernels::streamed_attention(ordered, rows, order.penalty, dropout_rate, /*norms=*/{},
                                         /*main_gradients=*/nullptr, order.streams);
    return last_of(kernels::cudnn_attention(ordered, order.penalty, dropout_rate), 1, rows);
  }
  if (order.alibi.defined()) return attend_with_scores(qkv, rows, order.alibi, dropout_rate);
  return attend(qkv, rows, order.streams, order.rotary, dropout_rate);
}

}  // namespace adtrain
