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
  adopt(factory.take());
}

ComposedAd::TransitionEmbedding ComposedAd::TransitionEmbedding::of(ParameterFactory& factory,
                                                                    const ModelOptions& options,
                                                                    const ModelShape& shape) {
  const Initialisation initial(options);
  const int64_t width = options.tf_n_embd;
  return {initial.outer_linear(factory, "embed_context", shape.transition_features(), width),
          initial.outer_embedding(factory, "embed_query_state", shape.states(), width)};
}

AlgorithmDistillation::Predictions ComposedAd::forward(const Batch& batch, LossPositions positions,
                                                       bool training) {
  const Tokens tokens = tokens_of(batch, positions);
  const DropoutRates rates = dropout_rates(training);
  return {pred_action_(stack_(tokens.x, tokens.streams, tokens.queries, rates, plan(positions),
                              recomputation(positions, rates), main_gradients())),
          {}};
}

ComposedAd::Tokens ComposedAd::tokens_of(const Batch& batch, LossPositions positions) const {
  if (previous_) {
    const at::Tensor x = (*previous_)(batch);
    return {x, stack_.one_stream(x, plan(positions)), positions == LossPositions::kAll ? x.size(1) : 1};
  }
  const PlainSequence sequence = PlainSequence::of(batch, shape(), positions, compute_type());
  const at::Tensor x =
      at::cat({transitions_.context(sequence.features), transitions_.query_state(sequence.queries)}, 1);
  return {x, sequence.streams, sequence.queries.size(1)};
}

}  // namespace adtrain
