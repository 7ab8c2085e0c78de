#include "model/PostNormAd.h"

#include <memory>

#include <ATen/ATen.h>

#include "model/RollingKeys.h"

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
  return {x, sequence.streams, sequence.queries.size(1)};
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

AlgorithmDistillation::Rolling PostNormAd::rolling() {
  const auto kept =
      std::make_shared<RollingBlocks>(RollingBlocks::of(options().n_transit, stack_.layers.size()));
  return without_gradients([this, kept](const Batch& step) {
    const at::Tensor tokens =
        tokens_without_positions(PlainSequence::of(step, shape(), LossPositions::kLast, compute_type()));
    RollingPlaces& places = kept->places;
    places.add(tokens.size(1), /*passing=*/1, tokens.device());  // no later step reads the query
    const at::Tensor x = tokens + stack_.pos_embedding.index_select(1, places.counts() - 1);
    const NewestTokens newest = NewestTokens::plain(places, plan(LossPositions::kLast));
    return stack_.pred_action(last_of(newest_through(stack_.layers, x, *kept, newest), 1, 1));
  });
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
  return Parts{std::ssize(stack_.layers), [this](const Batch& batch) { return embedded(batch, kLast); },
               [this](const Tokens& tokens, int64_t first, int64_t end) {
                 return stack_.through(tokens.x, tokens.streams, tokens.queries, first, end, /*rates=*/{},
                                       plan(kLast), /*recomputation=*/{}, /*main_gradients=*/nullptr);
               },
               [this](const Tokens& tokens) {
                 return at_the_query({stack_.pred_action(tokens.x), {}});
               }};
}

}  // namespace adtrain
