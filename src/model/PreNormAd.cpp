#include "model/PreNormAd.h"

#include <memory>
#include <optional>
#include <utility>

#include <ATen/ATen.h>
#include <fmt/format.h>

#include "kernels/attention/LibraryAttention.h"
#include "kernels/block/pre_norm/FusedPreNorm.h"
#include "kernels/block/pre_norm/PreNormSublayers.h"
#include "kernels/primitives/DeviceTraits.h"
#include "kernels/rope/Rope.h"
#include "model/PlainSequence.h"

namespace adtrain {

PreNormBlock::PreNormBlock(ParameterFactory& factory, const std::string& name, const ModelOptions& options)
    : heads_(options.tf_n_head),
      head_size_(options.head_size()),
      norm_1_(rms_norm(factory, name + ".norm_1", options.tf_n_embd)),
      attn_(default_linear(factory, name + ".attn.attn", options.tf_n_embd, 3 * options.tf_n_embd)),
      proj_(default_linear(factory, name + ".attn.proj", options.tf_n_embd, options.tf_n_embd)),
      norm_2_(rms_norm(factory, name + ".norm_2", options.tf_n_embd)),
      mlp_{.gate = default_linear(factory, name + ".mlp.swiglu.w1", options.tf_n_embd, options.inner_width(),
                                  false),
           .up = default_linear(factory, name + ".mlp.swiglu.w2", options.tf_n_embd, options.inner_width(),
                                false),
           .down = default_linear(factory, name + ".mlp.swiglu.w3", options.inner_width(), options.tf_n_embd,
                                  false)} {}

at::Tensor PreNormBlock::in_pass(const at::Tensor& x, const Pass& pass, const BlockPlace& place) const {
  if (!pass.own) return by_plain_operators(x, pass, place);
  const kernels::BlockPass own = pass.own->running(place.run);
  if (pass.blocks == kernels::KernelPlan::Blocks::kWhole) {
    return kernels::fused_pre_norm_block(x, parameters(), pass.rotary, pass.streams.queries, place.rows,
                                         place.number, own);
  }
  return kernels::pre_norm_block_by_sublayers(x, parameters(), pass.streams, pass.rotary, place.rows,
                                              place.number, own);
}

at::Tensor PreNormBlock::by_plain_operators(const at::Tensor& x, const Pass& pass,
                                            const BlockPlace& place) const {
  const DropoutRates& rates = pass.rates;
  const int64_t rows = place.rows;
  const at::Tensor qkv = heads_of(norm_1_(x, rates.hidden));
  const at::Tensor read = attend(qkv, rows, pass.streams, pass.rotary, rates.attention);

  const at::Tensor residual = last_of(x, 1, rows) + proj_(read);
  return residual + mlp_(norm_2_(residual, rates.hidden), place.run, pass.recomputes_mlp);
}

at::Tensor PreNormBlock::heads_of(const at::Tensor& normed) const {
  // The rows of the fused weight are ordered by head: q_h, k_h, v_h.
  return attn_(normed).view({normed.size(0), normed.size(1), heads_, 3, head_size_}).permute({3, 0, 2, 1, 4});
}

at::Tensor PreNormBlock::newest(const at::Tensor& x, RollingKeys& keys, const NewestTokens& tokens) const {
  return reading(x, tokens.rotary, keys.attending(tokens));
}

at::Tensor PreNormBlock::reading(const at::Tensor& x, const Rotary& rotary, const Attend& attend) const {
  const at::Tensor qkv = heads_of(norm_1_(x, /*dropout_rate=*/0));
  at::Tensor turned = qkv.narrow(0, 0, 2);
  if (qkv.scalar_type() != at::kFloat && kernels::rope_fits(head_size_) &&
      kernels::DeviceTraits::of(x.device()).runs_small_kernels()) {
    kernels::apply_rope(qkv.permute({1, 3, 2, 0, 4}), rotary);  // as the projection lies in memory
  } else {
    turned = kernels::rotated(turned, rotary);
  }
  const at::Tensor y = x + proj_(attend(turned[0], turned[1], qkv[2]));
  return y + mlp_(norm_2_(y, /*dropout_rate=*/0), kernels::PartRun::kForValues, /*recomputes=*/false);
}

std::vector<at::Tensor> PreNormBlock::parameters() const {
  return parameters_of(norm_1_, attn_, proj_, norm_2_, mlp_.gate, mlp_.up, mlp_.down);
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
  make_dynamics_head(factory);
  adopt(factory);
}

AlgorithmDistillation::Loss PreNormAd::loss(const Batch& batch, LossPositions positions, bool training) {
  return loss_at(encoded(batch, positions, dropout_rates(training)), batch, positions, pred_action_);
}

AlgorithmDistillation::Predictions PreNormAd::forward(const Batch& batch, LossPositions positions,
                                                      bool training) {
  return {pred_action_(encoded(batch, positions, dropout_rates(training))), {}};
}

PreNormAd::Tokens PreNormAd::tokens_of(const Batch& batch, LossPositions positions) const {
  const PlainSequence sequence = PlainSequence::of(batch, shape(), positions, compute_type());
  const at::Tensor x = at::cat({embed_context_(sequence.features), embed_query_state_(sequence.queries)}, 1);
  return {x, masked(sequence.streams, x, positions), sequence.queries.size(1)};
}

NewestStep PreNormAd::newest_step() const {
  NewestStep step = {.window = options().n_transit, .passing = 1};  // no later step reads the query
  step.tokens = [this](const Batch& rows) {
    return Tokens{embedded(rows, LossPositions::kLast).x, {}, /*queries=*/1};
  };
  step.through = [this](const at::Tensor& x, int64_t first, int64_t end, RollingBlocks& kept) {
    NewestTokens newest = NewestTokens::plain(kept.places, plan(LossPositions::kLast));
    newest.rotary = Rotary::of(kept.places.counts() - 1, options().head_size());
    return newest_through(blocks_, x, first, end, kept, newest);
  };
  return step;
}

ImaginationParts PreNormAd::imagination_parts() const {
  ImaginationParts parts = {
      .transitions = [this](const at::Tensor& features) { return embed_context_(features); },
      .queries = [this](const at::Tensor& states) { return embed_query_state_(states); },
      .rotary = true,
      .pred_action = pred_action_};
  for (const PreNormBlock& block : blocks_) {
    parts.blocks.push_back([&block](const at::Tensor& x, const Rotary& rotary, const Attend& attend) {
      return block.reading(x, rotary, attend);
    });
  }
  return parts;
}

std::optional<PreNormAd::Parts> PreNormAd::parts() {
  constexpr LossPositions kLast = LossPositions::kLast;
  return with_rolling({std::ssize(blocks_), [this](const Batch& batch) { return embedded(batch, kLast); },
                       [this](const Tokens& tokens, int64_t first, int64_t end) {
                         return through(tokens, first, end, kLast, /*rates=*/{});
                       },
                       [this](const Tokens& tokens) {
                         return at_the_query({pred_action_(tokens.x), {}});
                       }},
                      newest_step());
}

PreNormAd::Tokens PreNormAd::embedded(const Batch& batch, LossPositions positions) const {
  if (!plan(positions).fused_embedding()) return tokens_of(batch, positions);
  return tokens_by_kernel(batch, positions,
                          {.context_weight = embed_context_.values(),
                           .context_bias = embed_context_.bias,
                           .query_states = embed_query_state_.weight});
}

at::Tensor PreNormAd::encoded(const Batch& batch, LossPositions positions, const DropoutRates& rates) const {
  return through(embedded(batch, positions), 0, std::ssize(blocks_), positions, rates);
}

at::Tensor PreNormAd::through(const Tokens& tokens, int64_t first, int64_t end, LossPositions positions,
                              const DropoutRates& rates) const {
  const kernels::KernelPlan& plan = this->plan(positions);
  const TokenStreams& streams = tokens.streams;
  at::Tensor x = tokens.x;
  const Rotary rotary = Rotary::of(
      at::arange(streams.context, x.options().dtype(at::kLong).requires_grad(false)), options().head_size());
  const bool library_blocks = plan.blocks() == kernels::KernelPlan::Blocks::kLibrary;
  const BlockRecomputation again = recomputation(positions, rates);
  PreNormBlock::Pass of_all = {.streams = streams,
                               .rotary = library_blocks ? rotary.with_queries(streams) : rotary,
                               .rates = rates,
                               .blocks = plan.blocks(),
                               .own = {},
                               .recomputes_mlp = again.of_mlp()};
  if (!library_blocks) {
    of_all.own.emplace(x, options().tf_n_head, rates.attention, rates.hidden, plan.own_attention(),
                       main_gradients());
    of_all.own->recomputes_mlp = again.of_mlp();
  }
  const auto pass = std::make_shared<const PreNormBlock::Pass>(std::move(of_all));
  for (int64_t layer = first; layer < end; ++layer) {
    // Nothing reads the last block's output at the context.
    const bool last = layer + 1 == std::ssize(blocks_);
    const BlockPlace place = {.number = layer, .rows = last ? tokens.queries : x.size(1)};
    x = block_output(blocks_[static_cast<size_t>(layer)], x, pass, place, again);
  }
  return x;
}

}  // namespace adtrain
