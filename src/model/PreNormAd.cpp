#include "model/PreNormAd.h"

#include <algorithm>

#include <ATen/ATen.h>
#include <fmt/format.h>

#include "model/PlainSequence.h"
#include "model/kernels/fused/FusedEnds.h"
#include "model/kernels/fused/FusedPreNorm.h"
#include "model/kernels/fused/FusedShapes.h"

namespace adtrain {

PreNormBlock::PreNormBlock(ParameterFactory& factory, const std::string& name, const ModelOptions& options)
    : heads_(options.tf_n_head),
      head_size_(options.head_size()),
      norm_1_(rms_norm(factory, name + ".norm_1", options.tf_n_embd)),
      attn_(default_linear(factory, name + ".attn.attn", options.tf_n_embd, 3 * options.tf_n_embd)),
      proj_(default_linear(factory, name + ".attn.proj", options.tf_n_embd, options.tf_n_embd)),
      norm_2_(rms_norm(factory, name + ".norm_2", options.tf_n_embd)),
      w1_(default_linear(factory, name + ".mlp.swiglu.w1", options.tf_n_embd, options.inner_width(), false)),
      w2_(default_linear(factory, name + ".mlp.swiglu.w2", options.tf_n_embd, options.inner_width(), false)),
      w3_(default_linear(factory, name + ".mlp.swiglu.w3", options.inner_width(), options.tf_n_embd, false)) {
}

at::Tensor PreNormBlock::operator()(const at::Tensor& x, const Streams& streams, int64_t rows,
                                    const Rotary& rotary, const DropoutRates& rates) const {
  const int64_t tokens = x.size(1);
  const at::Tensor fused = attn_(norm_1_(x, rates.hidden));
  // The rows of the fused weight stand per head: q_h, k_h, v_h.
  const at::Tensor qkv = fused.view({x.size(0), tokens, heads_, 3, head_size_}).permute({3, 0, 2, 1, 4});
  const at::Tensor read = attend(qkv, rows, streams, rotary, rates.attention);

  const at::Tensor residual = last_of(x, 1, rows) + proj_(read);
  const at::Tensor normed = norm_2_(residual, rates.hidden);
  return residual + w3_(silu_product(w1_(normed), w2_(normed)));
}

std::vector<at::Tensor> PreNormBlock::parameters() const {
  return {norm_1_.weight, attn_.weight, attn_.bias, proj_.weight, proj_.bias,
          norm_2_.weight, w1_.weight,   w2_.weight, w3_.weight};
}

PreNormAd::PreNormAd(const ModelOptions& options, const ModelShape& shape, ParameterFactory factory)
    : AlgorithmDistillation(options, shape),
      embed_context_(
          default_linear(factory, "embed_context", shape.transition_features(), options.tf_n_embd)),
      embed_query_state_(embedding(factory, "embed_query_state", shape.states(), options.tf_n_embd)) {
  for (int64_t layer = 0; layer < options.tf_n_layer; ++layer) {
    blocks_.emplace_back(factory, fmt::format("transformer.blocks.{}", layer), options);
  }
  pred_action_ = default_linear(factory, "pred_action", options.tf_n_embd, shape.num_actions);
  adopt(factory.take());
}

AlgorithmDistillation::Loss PreNormAd::loss(const Batch& batch, LossPositions positions, bool training) {
  if (!is_fused(positions)) return AlgorithmDistillation::loss(batch, positions, training);
  return fused_loss(encoded_by_kernels(batch, positions, dropout_rates(training)), batch, pred_action_);
}

AlgorithmDistillation::Predictions PreNormAd::forward(const Batch& batch, LossPositions positions,
                                                      bool training) {
  const DropoutRates rates = dropout_rates(training);
  const at::Tensor queries =
      is_fused(positions) ? encoded_by_kernels(batch, positions, rates) : encoded(batch, positions, rates);
  return {pred_action_(queries), {}};
}

at::Tensor PreNormAd::encoded(const Batch& batch, LossPositions positions, const DropoutRates& rates) const {
  const PlainSequence sequence = PlainSequence::of(batch, shape(), positions, compute_type());
  const Rotary rotary = Rotary::of(sequence.positions, options().head_size());
  at::Tensor x = at::cat({embed_context_(sequence.features), embed_query_state_(sequence.queries)}, 1);
  for (const PreNormBlock& block : blocks_) {
    const bool last = &block == &blocks_.back();  // nothing reads the context's rows of the last block
    const int64_t rows = last ? sequence.queries.size(1) : x.size(1);
    x = block(x, sequence.streams, rows, rotary, rates);
  }
  return x;
}

at::Tensor PreNormAd::encoded_by_kernels(const Batch& batch, LossPositions positions,
                                         const DropoutRates& rates) const {
  const int64_t tokens = batch.states.size(1);
  const int64_t queries = positions == LossPositions::kAll ? tokens : 0;
  at::Tensor x = kernels::fused_embedding(batch, shape(), positions,
                                          {.context_weight = embed_context_.weight,
                                           .context_bias = embed_context_.bias,
                                           .query_states = embed_query_state_.weight},
                                          gradient_sink());
  const Rotary rotary =
      Rotary::of(at::arange(tokens, batch.states.options().dtype(at::kLong)), options().head_size());
  const kernels::BlockPass pass(x, options().tf_n_head, rates.attention, rates.hidden, gradient_sink());
  for (size_t layer = 0; layer < blocks_.size(); ++layer) {
    const bool last = layer + 1 == blocks_.size();
    const int64_t rows = last ? std::max<int64_t>(queries, 1) : x.size(1);
    x = kernels::fused_pre_norm_block(x, blocks_[layer].parameters(), rotary, queries, rows,
                                      static_cast<int64_t>(layer), pass);
  }
  return x;
}

std::optional<std::string> PreNormAd::why_not_fused(LossPositions /*positions*/) const {
  if (auto why = kernels::why_no_fused_blocks(options(), options().n_transit, device(), compute_type()))
    return why;
  if (!fuses_ends()) return "the kernels of embedding and loss are for fewer actions";
  return std::nullopt;
}

}  // namespace adtrain
