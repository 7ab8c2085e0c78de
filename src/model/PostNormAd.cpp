#include "model/PostNormAd.h"

#include <ATen/ATen.h>

#include "model/PlainSequence.h"

namespace adtrain {

PostNormAd::PostNormAd(const ModelOptions& options, const ModelShape& shape, ParameterFactory factory)
    : AlgorithmDistillation(options, shape), stack_(factory, options, shape) {
  adopt(factory.take());
}

AlgorithmDistillation::Loss PostNormAd::loss(const Batch& batch, LossPositions positions, bool training) {
  if (!plan(positions).fused_loss()) return AlgorithmDistillation::loss(batch, positions, training);
  return fused_loss(encoded(batch, positions, training), batch, stack_.pred_action);
}

AlgorithmDistillation::Predictions PostNormAd::forward(const Batch& batch, LossPositions positions,
                                                       bool training) {
  return {stack_.pred_action(encoded(batch, positions, training)), {}};
}

PostNormAd::Tokens PostNormAd::tokens_of(const Batch& batch, LossPositions positions) const {
  const PlainSequence sequence = PlainSequence::of(batch, shape(), positions, compute_type());
  const at::Tensor transition_type = stack_.token_type_embedding.weight[kTransition];
  const at::Tensor context = stack_.embed_context(sequence.features) + transition_type;
  const at::Tensor tokens = at::cat({context, stack_.embed_query_state(sequence.queries)}, 1);
  const at::Tensor x = tokens + stack_.pos_embedding.index_select(1, sequence.positions);
  return {x, sequence.streams, sequence.queries.size(1)};
}

at::Tensor PostNormAd::encoded(const Batch& batch, LossPositions positions, bool training) const {
  const kernels::KernelPlan& plan = this->plan(positions);
  const Tokens tokens = plan.fused_embedding()
                            ? tokens_by_kernel(batch, positions,
                                               {.context_weight = stack_.embed_context.weight,
                                                .context_bias = stack_.embed_context.bias,
                                                .types = stack_.token_type_embedding.weight,
                                                .query_states = stack_.embed_query_state.weight,
                                                .positions = stack_.pos_embedding})
                            : tokens_of(batch, positions);
  const DropoutRates rates = dropout_rates(training);
  return stack_.encode(tokens.x, tokens.streams, tokens.queries, rates, plan, recomputation(positions, rates),
                       main_gradients());
}

}  // namespace adtrain
