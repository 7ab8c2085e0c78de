#include "model/PreNormAd.h"

#include <ATen/ATen.h>
#include <fmt/format.h>

#include "model/PlainSequence.h"

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

AlgorithmDistillation::Predictions PreNormAd::forward(const Batch& batch, LossPositions positions,
                                                      bool training) {
  const PlainSequence sequence = PlainSequence::of(batch, shape(), positions, compute_type());
  const Rotary rotary = Rotary::of(sequence.positions, options().head_size());
  at::Tensor x = at::cat({embed_context_(sequence.features), embed_query_state_(sequence.queries)}, 1);
  for (const PreNormBlock& block : blocks_) {
    const bool last = &block == &blocks_.back();  // nothing reads the context's rows of the last block
    const int64_t rows = last ? sequence.queries.size(1) : x.size(1);
    x = block(x, sequence.streams, rows, rotary, dropout_rates(training));
  }
  return {pred_action_(x), {}};
}

}  // namespace adtrain
