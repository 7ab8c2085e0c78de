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
  const Tokens tokens = embedded(batch, positions);
  const DropoutRates rates = dropout_rates(training);
  return predicted(stack_.encode(tokens.x, tokens.streams, tokens.queries, rates, plan(positions),
                                 recomputation(positions, rates), main_gradients()));
}

std::optional<CompressedAd::Parts> CompressedAd::parts() {
  constexpr LossPositions kLast = LossPositions::kLast;
  Parts parts = {std::ssize(stack_.layers), [this](const Batch& batch) { return embedded(batch, kLast); },
                 [this](const Tokens& tokens, int64_t first, int64_t end) {
                   return stack_.through(tokens.x, tokens.streams, tokens.queries, first, end, /*rates=*/{},
                                         plan(kLast), /*recomputation=*/{}, /*main_gradients=*/nullptr);
                 },
                 [this](const Tokens& tokens) { return at_the_query(predicted(tokens.x)); }};
  parts.read_by_head = {"pred_token_type.weight", "pred_token_type.bias"};
  return parts;
}

CompressedAd::Tokens CompressedAd::embedded(const Batch& batch, LossPositions positions) const {
  const CompressedSequence sequence = CompressedSequence::of(batch, shape(), positions, compute_type());
  const at::Tensor context = at::linear(sequence.context, context_weight());
  const at::Tensor queries = stack_.embed_query_state(sequence.queries);
  const at::Tensor x =
      at::cat({context, queries}, 1) + at::embedding(stack_.pos_embedding.squeeze(0), sequence.positions);
  return {x, masked(sequence.streams, x, positions), queries.size(1)};
}

AlgorithmDistillation::Predictions CompressedAd::predicted(const at::Tensor& read) const {
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
