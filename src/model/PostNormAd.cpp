#include "model/PostNormAd.h"

#include <ATen/ATen.h>

namespace adtrain {

PostNormAd::PostNormAd(const ModelOptions& options, const ModelShape& shape, ParameterFactory factory)
    : AlgorithmDistillation(options, shape), stack_(factory, options, shape) {
  make_dynamics_head(factory);
  adopt(factory);
}

AlgorithmDistillation::Loss PostNormAd::loss(const Batch& batch, LossPositions positions, bool training) {
  return loss_at(encoded(batch, positions, training), batch, positions, stack_.pred_action);
}

AlgorithmDistillation::Predictions PostNormAd::forward(const Batch& batch, LossPositions positions,
                                                       bool training) {
  return {stack_.pred_action(encoded(batch, positions, training)), {}};
}

at::Tensor PostNormAd::tokens_without_positions(const PlainSequence& sequence) const {
  return at::cat({transitions_of(sequence.features), stack_.embed_query_state(sequence.queries)}, 1);
}

at::Tensor PostNormAd::transitions_of(const at::Tensor& features) const {
  return stack_.embed_context(features) + stack_.token_type_embedding.weight[kTransition];
}

PostNormAd::Tokens PostNormAd::tokens_of(const Batch& batch, LossPositions positions) const {
  const PlainSequence sequence = PlainSequence::of(batch, shape(), positions, compute_type());
  const at::Tensor x =
      tokens_without_positions(sequence) + stack_.pos_embedding.index_select(1, sequence.positions);
  return {x, masked(sequence.streams, x, positions), sequence.queries.size(1)};
}

PostNormAd::Tokens PostNormAd::embedded(const Batch& batch, LossPositions positions) const {
  if (!plan(positions).fused_embedding()) return tokens_of(batch, positions);
  return tokens_by_kernel(batch, positions,
                          {.context_weight = stack_.embed_context.values(),
                           .context_bias = stack_.embed_context.bias,
                           .types = stack_.token_type_embedding.weight,
                           .query_states = stack_.embed_query_state.weight,
                           .positions = stack_.pos_embedding});
}

at::Tensor PostNormAd::encoded(const Batch& batch, LossPositions positions, bool training) const {
  const Tokens tokens = embedded(batch, positions);
  const DropoutRates rates = dropout_rates(training);
  return stack_.encode(tokens.x, tokens.streams, tokens.queries, rates, plan(positions),
                       recomputation(positions, rates), main_gradients());
}

NewestStep PostNormAd::newest_step() const {
  NewestStep step = {.window = options().n_transit, .passing = 1};  // no later step reads the query
  step.tokens = [this](const Batch& rows) {
    const auto sequence = PlainSequence::of(rows, shape(), LossPositions::kLast, compute_type());
    return Tokens{tokens_without_positions(sequence), {}, /*queries=*/1};
  };
  step.with_positions = [this](const at::Tensor& x, const RollingPlaces& places) {
    return x + stack_.pos_embedding.index_select(1, places.counts() - 1);
  };
  step.through = [this](const at::Tensor& x, int64_t first, int64_t end, RollingBlocks& kept) {
    return newest_through(stack_.layers, x, first, end, kept,
                          NewestTokens::plain(kept.places, plan(LossPositions::kLast)));
  };
  return step;
}

ImaginationParts PostNormAd::imagination_parts() const {
  ImaginationParts parts = {
      .transitions = [this](const at::Tensor& features) { return transitions_of(features); },
      .queries = [this](const at::Tensor& states) { return stack_.embed_query_state(states); },
      .positions = stack_.pos_embedding[0],
      .pred_action = stack_.pred_action};
  for (const PostNormBlock& block : stack_.layers) {
    parts.blocks.push_back([&block](const at::Tensor& x, const Rotary&, const Attend& attend) {
      return block.reading(x, attend);
    });
  }
  return parts;
}

std::optional<PostNormAd::Parts> PostNormAd::parts() {
  constexpr LossPositions kLast = LossPositions::kLast;
  return with_rolling(
      {std::ssize(stack_.layers), [this](const Batch& batch) { return embedded(batch, kLast); },
       [this](const Tokens& tokens, int64_t first, int64_t end) {
         return stack_.through(tokens.x, tokens.streams, tokens.queries, first, end, /*rates=*/{},
                               plan(kLast),
                               /*recomputation=*/{}, /*main_gradients=*/nullptr);
       },
       [this](const Tokens& tokens) {
         return at_the_query({stack_.pred_action(tokens.x), {}});
       }},
      newest_step());
}

}  // namespace adtrain
