#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <vector>

#include <ATen/core/Tensor.h>

#include "base/MainGradients.h"
#include "kernels/plan/KernelPlan.h"
#include "model/ComposedBlock.h"
#include "model/Imagination.h"
#include "model/RollingParts.h"

namespace adtrain {

/// Blocks of chosen pieces one behind the other, with positions before them and a norm behind them where
/// these are chosen. Plain operators define it; blocks of some pieces train by sublayers on GPUs.
class ComposedStack {
 public:
  ComposedStack(ParameterFactory& factory, const ModelOptions& options, const Initialisation& initial);

  /// The streams of the tokens x (B, tokens, width), with masks where attention reads these. ALiBi's scores
  /// are a mask of their own.
  TokenStreams masked(const TokenStreams& streams, const at::Tensor& x,
                      const kernels::KernelPlan& plan) const;
  /// x (B, streams.tokens(), width), embedded -> what a head reads at the last `queries` tokens (B, queries,
  /// width). Follows `plan`. `main_gradients`: see MainGradients; null for none.
  at::Tensor operator()(const at::Tensor& x, const TokenStreams& streams, int64_t queries,
                        const DropoutRates& rates, const kernels::KernelPlan& plan,
                        const BlockRecomputation& recomputation, MainGradients* main_gradients) const;

  /// The same pass in parts, without dropout, each where its parameters are: x with its positions, through
  /// blocks `first` … `end` − 1, the last of which returns the last `queries` tokens, and the final norm.
  int64_t blocks() const { return std::ssize(blocks_); }
  at::Tensor before_blocks(const at::Tensor& embedded, const TokenStreams& streams) const;
  at::Tensor through_blocks(const at::Tensor& x, const TokenStreams& streams, int64_t queries, int64_t first,
                            int64_t end, const kernels::KernelPlan& plan) const;
  at::Tensor behind_blocks(const at::Tensor& x) const;
  /// head(behind_blocks(x)) of the newest tokens, without gradients.
  at::Tensor newest_logits(const at::Tensor& x, const Linear& head, const kernels::KernelPlan& plan) const;

  /// Whether a token's position is known without where its window begins, so that rows may grow for ever.
  bool slides() const { return !learned_positions_.defined(); }
  /// How rows grow by a step's embedded `tokens`, the last `passing` of which stay unread (see
  /// RollingPlaces). Where nothing has left the window, as the pass above; without dropout. Follows `plan`.
  /// Where that has decoding_attention(), each step launches the same kernels on the same memory as the one
  /// before with as many tokens. Borrows this.
  NewestStep newest_step(int64_t window, int64_t passing,
                         const std::function<AlgorithmDistillation::Tokens(const Batch&)>& tokens,
                         const std::function<const kernels::KernelPlan&()>& plan) const;
  /// Blocks, positions and final norm, for an Imagination; the rest is empty. Borrows this.
  ImaginationParts imagination_parts() const;

 private:
  /// Each token's position in its prefix: int64 (tokens), of packed rows (B, tokens).
  static at::Tensor positions_of(const at::Tensor& x, const TokenStreams& streams);
  TokenOrder order_of(const at::Tensor& x, const TokenStreams& streams,
                      const kernels::KernelPlan& plan) const;
  /// What attention must know of the newest tokens, of which x are inputs of a block.
  NewestTokens newest_of(const RollingPlaces& places, const at::Tensor& x,
                         const kernels::KernelPlan& plan) const;

  /// Which blocks run.
  struct Range {
    int64_t first, end;
  };
  /// The newest tokens x through these blocks.
  at::Tensor newest_blocks(const at::Tensor& x, const Range& range, RollingBlocks& kept,
                           const kernels::KernelPlan& plan) const;
  /// Behind the first step: one kernel for the steps that follow, where there is one.
  std::optional<kernels::StackDecoder> decoder_of(const at::Tensor& x, const Range& range,
                                                  RollingBlocks& kept, const NewestTokens& newest) const;
  at::Tensor through(const at::Tensor& x, const TokenStreams& streams, int64_t queries, const Range& range,
                     const DropoutRates& rates, const kernels::KernelPlan& plan,
                     const BlockRecomputation& recomputation, MainGradients* main_gradients) const;

  TransformerBlock preset_;
  PositionKind position_kind_;
  int64_t heads_, head_size_;
  at::Tensor learned_positions_;  ///< (n_transit, width); undefined for other positions
  std::vector<ComposedBlock> blocks_;
  ChosenNorm final_norm_;  ///< undefined for none
};

}  // namespace adtrain
