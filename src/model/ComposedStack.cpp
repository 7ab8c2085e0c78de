#include "model/ComposedStack.h"

#include <algorithm>
#include <memory>
#include <optional>
#include <utility>

#include <ATen/ATen.h>
#include <c10/core/GradMode.h>
#include <fmt/format.h>

#include "kernels/dropout/Dropout.h"
#include "kernels/norm/NormedHead.h"

namespace adtrain {
namespace {

constexpr double kPositionDeviation = 0.02;

/// cuDNN compiles kernels for each length: passes without gradients, whose sequences may grow, do without.
AttentionKernels attention_kernels(const kernels::KernelPlan& plan) {
  if (plan.own_attention()) return AttentionKernels::kStreamed;
  return plan.cudnn_attention() && c10::GradMode::is_enabled() ? AttentionKernels::kCudnn
                                                               : AttentionKernels::kOperators;
}

}  // namespace

ComposedStack::ComposedStack(ParameterFactory& factory, const ModelOptions& options,
                             const Initialisation& initial)
    : preset_(options.block()),
      position_kind_(options.block_pieces().positions),
      heads_(options.tf_n_head),
      head_size_(options.head_size()) {
  const BlockPieces pieces = options.block_pieces();
  const int64_t width = options.tf_n_embd;
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
}

TokenStreams ComposedStack::masked(const TokenStreams& streams, const at::Tensor& x,
                                   const kernels::KernelPlan& plan) const {
  const bool reads_masks =
      attention_kernels(plan) == AttentionKernels::kOperators && position_kind_ != PositionKind::kAlibi;
  return reads_masks ? streams.with_masks(x) : streams;
}

at::Tensor ComposedStack::operator()(const at::Tensor& embedded, const TokenStreams& streams, int64_t queries,
                                     const DropoutRates& rates, const kernels::KernelPlan& plan,
                                     const BlockRecomputation& recomputation,
                                     MainGradients* main_gradients) const {
  const ComposedDropout dropout = ComposedDropout::of(preset_, rates);
  const at::Tensor x = kernels::dropout(before_blocks(embedded, streams), dropout.tokens);
  return behind_blocks(
      through(x, streams, queries, {0, blocks()}, rates, plan, recomputation, main_gradients));
}

at::Tensor ComposedStack::before_blocks(const at::Tensor& embedded, const TokenStreams& streams) const {
  if (!learned_positions_.defined()) return embedded;
  const at::Tensor positions = positions_of(embedded, streams);
  return embedded + learned_positions_.index_select(0, positions.flatten()).unflatten(0, positions.sizes());
}

at::Tensor ComposedStack::through_blocks(const at::Tensor& x, const TokenStreams& streams, int64_t queries,
                                         int64_t first, int64_t end, const kernels::KernelPlan& plan) const {
  return through(x, streams, queries, {first, end}, /*rates=*/{}, plan, /*recomputation=*/{},
                 /*main_gradients=*/nullptr);
}

at::Tensor ComposedStack::behind_blocks(const at::Tensor& x) const {
  return final_norm_.weight.defined() ? final_norm_(x) : x;
}

at::Tensor ComposedStack::newest_logits(const at::Tensor& x, const Linear& head,
                                        const kernels::KernelPlan& plan) const {
  if (plan.decoding_attention() && kernels::normed_head_fits(x, head.weight.size(0)))
    return kernels::normed_head(x, final_norm_.weights(), head.weight, head.bias);
  return head(behind_blocks(x));
}

at::Tensor ComposedStack::through(const at::Tensor& embedded, const TokenStreams& streams, int64_t queries,
                                  const Range& range, const DropoutRates& rates,
                                  const kernels::KernelPlan& plan, const BlockRecomputation& recomputation,
                                  MainGradients* main_gradients) const {
  const ComposedDropout dropout = ComposedDropout::of(preset_, rates);
  const TokenOrder order = order_of(embedded, streams, plan);
  at::Tensor x = embedded;
  std::optional<kernels::BlockPass> pass;
  if (order.kernels != AttentionKernels::kOperators && plan.by_sublayers() &&
      !plan.quantised()) {  // attention draws its own dropout
    pass.emplace(x, heads_, /*attention_rate=*/0, std::max(dropout.norm_input, dropout.attention_output),
                 /*own_attention=*/false, main_gradients);
    pass->recomputes_mlp = recomputation.of_mlp();
  }
  const auto of_all = std::make_shared<const ComposedPass>(ComposedPass{
      order, dropout, std::move(pass), plan.by_sublayers() && plan.quantised(), recomputation.of_mlp()});
  for (int64_t i = range.first; i < range.end; ++i) {
    const bool last = i + 1 == blocks();  // nothing reads the last block's output at the context
    const int64_t rows = last ? queries : x.size(1);
    x = block_output(blocks_[static_cast<size_t>(i)], x, of_all, {.number = i, .rows = rows}, recomputation);
  }
  return x;
}

NewestStep ComposedStack::newest_step(
    int64_t window, int64_t passing, const std::function<AlgorithmDistillation::Tokens(const Batch&)>& tokens,
    const std::function<const kernels::KernelPlan&()>& plan) const {
  NewestStep step = {.window = window, .passing = passing, .tokens = tokens};
  if (learned_positions_.defined()) {
    step.with_positions = [this](const at::Tensor& x, const RollingPlaces& places) {
      return x + learned_positions_.index_select(0, places.counts() - 1);
    };
  }
  step.through = [this, plan](const at::Tensor& x, int64_t first, int64_t end, RollingBlocks& kept) {
    return newest_blocks(x, {first, end}, kept, plan());
  };
  return step;
}

at::Tensor ComposedStack::newest_blocks(const at::Tensor& x, const Range& range, RollingBlocks& kept,
                                        const kernels::KernelPlan& plan) const {
  if (kept.stacked && kept.stacked->takes(x, range.first, range.end))
    return (*kept.stacked->decoder)(x, kept.places.counts());
  const NewestTokens newest = newest_of(kept.places, x, plan);
  at::Tensor y = newest_through(blocks_, x, range.first, range.end, kept, newest);
  if (!kept.stacked) kept.stacked = {range.first, range.end, decoder_of(x, range, kept, newest)};
  return y;
}

std::optional<kernels::StackDecoder> ComposedStack::decoder_of(const at::Tensor& x, const Range& range,
                                                               RollingBlocks& kept,
                                                               const NewestTokens& newest) const {
  if (!newest.around_products || newest.rotary.cosines.defined()) return std::nullopt;
  std::vector<kernels::StackableBlock> stackable;
  for (int64_t i = range.first; i < range.end; ++i) {
    const auto place = static_cast<size_t>(i);
    auto block = blocks_[place].stackable(x, kept.blocks[place]);
    if (!block) return std::nullopt;
    stackable.push_back(std::move(*block));
  }
  return kernels::StackDecoder::of(stackable, x.size(0), x.scalar_type(), *newest.by_kernel);
}

NewestTokens ComposedStack::newest_of(const RollingPlaces& places, const at::Tensor& x,
                                      const kernels::KernelPlan& plan) const {
  NewestTokens newest = NewestTokens::plain(places, plan);
  if (position_kind_ == PositionKind::kAlibi && newest.by_kernel) {
    newest.by_kernel = kernels::DistancePenalty::kAlibi;
  } else if (position_kind_ == PositionKind::kAlibi) {
    const at::Tensor slopes = alibi_slopes(heads_, x).view({1, heads_, 1, 1});
    for (int64_t token = 0; token < places.tokens(); ++token)
      newest.penalties.push_back((slopes * -places.ages(token, x.device())).to(x.scalar_type()));
  }
  if (position_kind_ == PositionKind::kRotary) newest.rotary = Rotary::of(places.counts() - 1, head_size_);
  return newest;
}

ImaginationParts ComposedStack::imagination_parts() const {
  ImaginationParts parts = {.transitions = nullptr, .queries = nullptr};
  if (learned_positions_.defined()) parts.positions = learned_positions_;
  parts.rotary = position_kind_ == PositionKind::kRotary;
  if (position_kind_ == PositionKind::kAlibi)
    parts.slopes = alibi_slopes(heads_, blocks_.front().parameters().front());
  for (const ComposedBlock& block : blocks_) {
    parts.blocks.push_back([&block](const at::Tensor& x, const Rotary& rotary, const Attend& attend) {
      return block.reading(x, rotary, attend);
    });
  }
  parts.behind_blocks = [this](const at::Tensor& x) { return behind_blocks(x); };
  return parts;
}

at::Tensor ComposedStack::positions_of(const at::Tensor& x, const TokenStreams& streams) {
  const at::Tensor context = at::arange(streams.context, x.options().dtype(at::kLong).requires_grad(false));
  if (streams.packed()) return context - streams.segments.first;
  return at::cat({context, last_of(context, 0, streams.queries)});
}

TokenOrder ComposedStack::order_of(const at::Tensor& x, const TokenStreams& streams,
                                   const kernels::KernelPlan& plan) const {
  TokenOrder order = {.streams = streams, .rotary = {}, .alibi = {}, .kernels = attention_kernels(plan)};
  if (position_kind_ == PositionKind::kAlibi) {
    order.penalty = kernels::DistancePenalty::kAlibi;
    if (order.kernels == AttentionKernels::kOperators) order.alibi = alibi_scores(heads_, streams, x);
  }
  if (position_kind_ == PositionKind::kRotary) {
    const at::Tensor positions = positions_of(x, streams);
    order.rotary = Rotary::of(streams.packed() ? positions.unsqueeze(1) : positions, head_size_);
  }
  return order;
}

}  // namespace adtrain
