#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "model/AlgorithmDistillation.h"
#include "model/Attention.h"
#include "model/Layers.h"

namespace adtrain {

/// x + attention(norm(x)), then x + SwiGLU(norm(x)); rotary positions; no norm after the last block.
class PreNormBlock {
 public:
  PreNormBlock(ParameterFactory& factory, const std::string& name, const ModelOptions& options);

  /// x (B, tokens, width) -> the last `rows` tokens (B, rows, width).
  at::Tensor operator()(const at::Tensor& x, const TokenStreams& streams, int64_t rows, const Rotary& rotary,
                        const DropoutRates& rates) const;
  /// In the order of making.
  std::vector<at::Tensor> parameters() const;

 private:
  int64_t heads_, head_size_;
  RmsNorm norm_1_;
  Linear attn_, proj_;
  RmsNorm norm_2_;
  Linear w1_, w2_, w3_;
};

/// The model of Algorithm Distillation with the pre-norm block (DICP's). Where fused kernels fit, blocks run
/// by them, as a whole or by sublayers.
class PreNormAd : public AlgorithmDistillation {
 public:
  PreNormAd(const ModelOptions& options, const ModelShape& shape, ParameterFactory factory);

  Loss loss(const Batch& batch, LossPositions positions, bool training) override;
  Predictions forward(const Batch& batch, LossPositions positions, bool training) override;

 private:
  Tokens tokens_of(const Batch& batch, LossPositions positions) const;
  /// The blocks' output at the queries (B, Q, width).
  at::Tensor encoded(const Batch& batch, LossPositions positions, const DropoutRates& rates) const;

  Linear embed_context_;
  Embedding embed_query_state_;
  std::vector<PreNormBlock> blocks_;
  Linear pred_action_;
};

}  // namespace adtrain
