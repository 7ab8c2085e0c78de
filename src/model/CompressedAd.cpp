#include "model/CompressedAd.h"

#include <ATen/ATen.h>

#include "model/CompressedSequence.h"

namespace adtrain {

CompressedAd::CompressedAd(const ModelOptions& options, const ModelShape& shape, ParameterFactory factory)
    : AlgorithmDistillation(options, shape), stack_(factory, options, shape) {
  adopt(factory);
}

AlgorithmDistillation::Predictions CompressedAd::forward(const Batch& batch, LossPositions positions,
                                                         bool training) {
  const CompressedSequence sequence =
      CompressedSequence::of(batch, shape(), positions, compute_type(), plan(positions).reads_masks());
  const at::Tensor context = at::linear(sequence.context, context_weight());
  const at::Tensor queries = stack_.embed_query_state(sequence.queries);
  const at::Tensor x =
      at::cat({context, queries}, 1) + at::embedding(stack_.pos_embedding.squeeze(0), sequence.positions);
  const DropoutRates rates = dropout_rates(training);
  const at::Tensor read = stack_.encode(x, sequence.streams, queries.size(1), rates, plan(positions),
                                        recomputation(positions, rates), main_gradients());
  return {stack_.pred_action(read), stack_.pred_token_type(read)};
}

at::Tensor CompressedAd::context_weight() const {
  const at::Tensor& types = stack_.token_type_embedding.weight;
  const at::Tensor of_types = at::stack({stack_.embed_context.bias + types[kTransition],
                                         stack_.compress_start_token.flatten() + types[kCompress],
                                         stack_.compress_end_token.flatten() + types[kEndCompress]},
                                        1);
  return at::cat({stack_.embed_context.values(), of_types}, 1);
}

}  // namespace adtrain
