#include "model/ComposedAd.h"

#include <ATen/ATen.h>

#include "model/PlainSequence.h"

namespace adtrain {

ComposedAd::ComposedAd(const ModelOptions& options, const ModelShape& shape, ParameterFactory factory)
    : AlgorithmDistillation(options, shape),
      previous_(
          options.layout() == TokenLayout::kPrevious
              ? std::optional<PreviousTokens>(std::in_place, factory, options, shape, Initialisation(options))
              : std::nullopt),
      transitions_(previous_ ? TransitionEmbedding() : TransitionEmbedding::of(factory, options, shape)),
      stack_(factory, options, Initialisation(options)),
      pred_action_(Initialisation(options).outer_linear(factory, "pred_action", options.tf_n_embd,
                                                        shape.num_actions)) {
  make_dynamics_head(factory);
  adopt(factory);
}

ComposedAd::TransitionEmbedding ComposedAd::TransitionEmbedding::of(ParameterFactory& factory,
                                                                    const ModelOptions& options,
                                                                    const ModelShape& shape) {
  const Initialisation initial(options);
  const int64_t width = options.tf_n_embd;
  return {initial.outer_linear(factory, "embed_context", shape.transition_features(), width),
          initial.outer_embedding(factory, "embed_query_state", shape.states(), width)};
}

AlgorithmDistillation::Loss ComposedAd::loss(const Batch& batch, LossPositions positions, bool training) {
  return loss_at(encoded(batch, positions, training), batch, positions, pred_action_);
}

AlgorithmDistillation::Predictions ComposedAd::forward(const Batch& batch, LossPositions positions,
                                                       bool training) {
  return {pred_action_(encoded(batch, positions, training)), {}};
}

at::Tensor ComposedAd::encoded(const Batch& batch, LossPositions positions, bool training) const {
  const Tokens tokens = tokens_of(batch, positions);
  const DropoutRates rates = dropout_rates(training);
  return stack_(tokens.x, tokens.streams, tokens.queries, rates, plan(positions),
                recomputation(positions, rates), main_gradients());
}

ImaginationParts ComposedAd::imagination_parts() const {
  ImaginationParts parts = stack_.imagination_parts();
  parts.transitions = [this](const at::Tensor& features) { return transitions_.context(features); };
  parts.queries = [this](const at::Tensor& states) { return transitions_.query_state(states); };
  parts.pred_action = pred_action_;
  return parts;
}

NewestStep ComposedAd::newest_step() const {
  const auto plan_of_last = [this]() -> const kernels::KernelPlan& { return plan(LossPositions::kLast); };
  // Of PreviousTokens the last has all of the step before; else it is a query, which nothing reads later.
  NewestStep step = stack_.newest_step(options().n_transit, /*passing=*/previous_ ? 0 : 1,
                                       previous_ ? newest_previous() : newest_transition(), plan_of_last);
  step.head = [=, this](const Tokens& tokens) {
    return at_the_query({stack_.newest_logits(tokens.x, pred_action_, plan_of_last()), {}});
  };
  return step;
}

ComposedAd::EmbedStep ComposedAd::newest_transition() const {
  return [this](const Batch& rows) {
    const auto sequence = PlainSequence::of(rows, shape(), LossPositions::kLast, compute_type());
    return Tokens{embedded(sequence), {}, /*queries=*/1};
  };
}

ComposedAd::EmbedStep ComposedAd::newest_previous() const {
  // Each copy, of rows that begin anew, makes tables of its own.
  return [this, tables = std::optional<kernels::NewestTokenTables>()](const Batch& rows) mutable {
    const bool by_kernel = rows.actions.size(1) > 1 && plan(LossPositions::kLast).decoding_attention() &&
                           kernels::newest_tokens_fit(compute_type(), options().tf_n_embd);
    if (by_kernel && !tables) tables = previous_->newest_tables();
    const at::Tensor x =
        by_kernel && tables
            ? kernels::newest_tokens({rows.states, rows.actions, rows.rewards, rows.next_states}, *tables,
                                     compute_type())
            : previous_->newest(rows);
    return Tokens{x, {}, /*queries=*/1};
  };
}

std::optional<ComposedAd::Parts> ComposedAd::parts() {
  const auto embeddings = [this](const Batch& batch) {
    Tokens tokens = tokens_of(batch, LossPositions::kLast);
    tokens.x = stack_.before_blocks(tokens.x, tokens.streams);
    return tokens;
  };
  const auto through = [this](const Tokens& tokens, int64_t first, int64_t end) {
    return stack_.through_blocks(tokens.x, tokens.streams, tokens.queries, first, end,
                                 plan(LossPositions::kLast));
  };
  const auto head = [this](const Tokens& tokens) {
    return at_the_query({pred_action_(stack_.behind_blocks(tokens.x)), {}});
  };
  return with_rolling({stack_.blocks(), embeddings, through, head}, newest_step());
}

ComposedAd::Tokens ComposedAd::tokens_of(const Batch& batch, LossPositions positions) const {
  if (previous_) {
    const at::Tensor x = (*previous_)(batch);
    return {x, stack_.masked({.context = x.size(1)}, x, plan(positions)),
            positions == LossPositions::kAll ? x.size(1) : 1};
  }
  const PlainSequence sequence = PlainSequence::of(batch, shape(), positions, compute_type());
  const at::Tensor x = embedded(sequence);
  return {x, stack_.masked(sequence.streams, x, plan(positions)), sequence.queries.size(1)};
}

at::Tensor ComposedAd::embedded(const PlainSequence& sequence) const {
  return at::cat({transitions_.context(sequence.features), transitions_.query_state(sequence.queries)}, 1);
}

}  // namespace adtrain
