#include "model/ComposedAd.h"

#include <ATen/ATen.h>
#include <fmt/format.h>

#include "kernels/cpu/CpuElementwise.h"
#include "model/PlainSequence.h"

namespace adtrain {
namespace {

constexpr double kPositionDeviation = 0.02;

}  // namespace

ComposedAd::ComposedAd(const ModelOptions& options, const ModelShape& shape, ParameterFactory factory)
    : AlgorithmDistillation(options, shape), position_kind_(options.block_pieces().positions) {
  const BlockPieces pieces = options.block_pieces();
  const Initialisation initial(options);
  const int64_t width = options.tf_n_embd;
  if (options.layout() == TokenLayout::kPrevious) {
    previous_.emplace(factory, options, shape, initial);
  } else {
    transitions_ = {initial.outer_linear(factory, "embed_context", shape.transition_features(), width),
                    initial.outer_embedding(factory, "embed_query_state", shape.states(), width)};
  }
  if (position_kind_ == PositionKind::kLearned) {
    learned_positions_ =
        factory.normal("embed_position.weight", {options.n_transit, width}, kPositionDeviation);
  }
  for (int64_t layer = 0; layer < options.tf_n_layer; ++layer) {
    blocks_.emplace_back(factory, fmt::format("blocks.{}", layer), options, initial);
  }
  if (pieces.final_norm == Choice::kOn) {
    final_norm_ = ChosenNorm::of(factory, "final_norm", width, pieces.norm);
  }
  pred_action_ = initial.outer_linear(factory, "pred_action", width, shape.num_actions);
  adopt(factory.take());
}

AlgorithmDistillation::Predictions ComposedAd::forward(const Batch& batch, LossPositions positions,
                                                       bool training) {
  const ComposedDropout dropout = ComposedDropout::of(options().block(), dropout_rates(training));
  const Tokens tokens = tokens_of(batch, positions);
  const TokenOrder order = order_of(tokens);
  at::Tensor x = tokens.x;
  if (learned_positions_.defined()) x = x + learned_positions_.index_select(0, positions_of(tokens));
  x = kernels::dropout(x, dropout.tokens);
  for (const ComposedBlock& block : blocks_) {
    const bool last = &block == &blocks_.back();  // nothing reads the last block's output at the context
    x = block(x, order, last ? tokens.queries : x.size(1), dropout);
  }
  return {pred_action_(final_norm_.weight.defined() ? final_norm_(x) : x), {}};
}

ComposedAd::Tokens ComposedAd::tokens_of(const Batch& batch, LossPositions positions) const {
  if (previous_) {
    const at::Tensor x = (*previous_)(batch);
    const int64_t length = x.size(1);
    // ALiBi's scores are a mask of their own.
    const TokenStreams streams = position_kind_ == PositionKind::kAlibi
                                     ? TokenStreams{.context = length, .mask = {}}
                                     : TokenStreams::one(length, x);
    return {x, streams, positions == LossPositions::kAll ? length : 1};
  }
  const PlainSequence sequence = PlainSequence::of(batch, shape(), positions, compute_type());
  const at::Tensor x =
      at::cat({transitions_.context(sequence.features), transitions_.query_state(sequence.queries)}, 1);
  return {x, sequence.streams, sequence.queries.size(1)};
}

at::Tensor ComposedAd::positions_of(const Tokens& tokens) const {
  const at::Tensor context =
      at::arange(tokens.streams.context, tokens.x.options().dtype(at::kLong).requires_grad(false));
  return at::cat({context, last_of(context, 0, tokens.streams.queries)});
}

TokenOrder ComposedAd::order_of(const Tokens& tokens) const {
  TokenOrder order = {.streams = tokens.streams, .rotary = {}, .alibi = {}};
  if (position_kind_ == PositionKind::kAlibi) {
    order.alibi = alibi_scores(options().tf_n_head, tokens.streams, tokens.x);
  } else if (position_kind_ == PositionKind::kRotary) {
    order.rotary = Rotary::of(positions_of(tokens), options().head_size());
  }
  return order;
}

}  // namespace adtrain
