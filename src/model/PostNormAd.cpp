#include "model/PostNormAd.h"

#include <ATen/ATen.h>

#include "model/PlainSequence.h"

namespace adtrain {

PostNormAd::PostNormAd(const ModelOptions& options, const ModelShape& shape, ParameterFactory factory)
    : AlgorithmDistillation(options, shape), stack_(factory, options, shape) {
  adopt(factory.take());
}

AlgorithmDistillation::Predictions PostNormAd::forward(const Batch& batch, LossPositions positions,
                                                       bool training) {
  const PlainSequence sequence = PlainSequence::of(batch, shape(), positions, compute_type());
  const at::Tensor transition_type = stack_.token_type_embedding.weight[kTransition];
  const at::Tensor context = stack_.embed_context(sequence.features) + transition_type;
  const at::Tensor tokens = at::cat({context, stack_.embed_query_state(sequence.queries)}, 1);
  const at::Tensor x = tokens + stack_.pos_embedding.index_select(1, sequence.positions);
  const int64_t queries = sequence.queries.size(1);
  return {stack_.pred_action(stack_.encode(x, sequence.streams, queries, dropout_rates(training))), {}};
}

}  // namespace adtrain
