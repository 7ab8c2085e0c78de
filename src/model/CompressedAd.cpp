#include "model/CompressedAd.h"

#include <ATen/ATen.h>

#include "model/CompressedSequence.h"

namespace adtrain {

CompressedAd::CompressedAd(const ModelOptions& options, const ModelShape& shape, ParameterFactory factory)
    : AlgorithmDistillation(options, shape), stack_(factory, options, shape) {
  adopt(factory.take());
}

AlgorithmDistillation::Predictions CompressedAd::forward(const Batch& batch, LossPositions positions,
                                                         bool training) {
  const CompressedSequence sequence = CompressedSequence::of(batch, shape(), positions, compute_type());
  const at::Tensor& types = stack_.token_type_embedding.weight;
  const auto in_every_row = [&](const at::Tensor& token) { return token.expand({batch.size(), -1, -1}); };
  const at::Tensor start = in_every_row(stack_.compress_start_token + types[kCompress]);
  const at::Tensor end = in_every_row(stack_.compress_end_token + types[kEndCompress]);
  const at::Tensor previous = stack_.embed_context(sequence.previous) + types[kTransition];
  const at::Tensor current = stack_.embed_context(sequence.current) + types[kTransition];
  const at::Tensor queries = stack_.embed_query_state(sequence.queries);

  const at::Tensor tokens = at::cat({start, previous, end, start, current, queries}, 1);
  const at::Tensor x = tokens + at::embedding(stack_.pos_embedding.squeeze(0), sequence.positions);
  const at::Tensor read =
      stack_.encode(x, sequence.streams, queries.size(1), dropout_rates(training), gradient_sink());
  return {stack_.pred_action(read), stack_.pred_token_type(read)};
}

}  // namespace adtrain
