#pragma once

#include <cstdint>
#include <vector>

#include <ATen/core/Tensor.h>

#include "model/ComposedBlock.h"

namespace adtrain {

/// Blocks of chosen pieces one behind the other, with positions before them and a norm behind them where
/// these are chosen. Plain operators compute it.
class ComposedStack {
 public:
  ComposedStack(ParameterFactory& factory, const ModelOptions& options, const Initialisation& initial);

  /// One causal stream of the tokens x (B, tokens, width).
  TokenStreams one_stream(const at::Tensor& x) const;
  /// x (B, streams.tokens(), width), embedded -> what a head reads at the last `queries` tokens (B, queries,
  /// width).
  at::Tensor operator()(const at::Tensor& x, const TokenStreams& streams, int64_t queries,
                        const DropoutRates& rates) const;

 private:
  /// Each token's position in its prefix: int64 (tokens).
  static at::Tensor positions_of(const at::Tensor& x, const TokenStreams& streams);
  TokenOrder order_of(const at::Tensor& x, const TokenStreams& streams) const;

  TransformerBlock preset_;
  PositionKind position_kind_;
  int64_t heads_, head_size_;
  at::Tensor learned_positions_;  ///< (n_transit, width); undefined for other positions
  std::vector<ComposedBlock> blocks_;
  ChosenNorm final_norm_;  ///< undefined for none
};

}  // namespace adtrain
