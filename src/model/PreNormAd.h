#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "kernels/BlockPass.h"
#include "model/AlgorithmDistillation.h"
#include "model/Attention.h"
#include "model/Layers.h"
#include "model/Mlp.h"
#include "model/RollingParts.h"

namespace adtrain {

/// x + attention(norm(x)), then x + SwiGLU(norm(x)); rotary positions; no norm after the last block.
class PreNormBlock {
 public:
  PreNormBlock(ParameterFactory& factory, const std::string& name, const ModelOptions& options);

  /// What the blocks of one pass share.
  struct Pass {
    TokenStreams streams;
    Rotary rotary;  ///< of all tokens for plain operators, else of the context
    DropoutRates rates;
    kernels::KernelPlan::Blocks blocks;
    std::optional<kernels::BlockPass> own;  ///< a value where kernels of our own run them
    bool recomputes_mlp = false;
  };
  /// x (B, tokens, width) -> the last `place.rows` tokens (B, rows, width), as the plan says.
  at::Tensor in_pass(const at::Tensor& x, const Pass& pass, const BlockPlace& place) const;
  /// The same of rows' newest tokens x (B, tokens, width), without dropout, by plain operators.
  at::Tensor newest(const at::Tensor& x, RollingKeys& keys, const NewestTokens& tokens) const;
  /// x (B, tokens, width) without dropout, by plain operators: the same shape. `rotary` is of these tokens,
  /// and undefined where the block has no rotary positions.
  at::Tensor reading(const at::Tensor& x, const Rotary& rotary, const Attend& attend) const;
  /// In the order of making.
  std::vector<at::Tensor> parameters() const;

 private:
  at::Tensor by_plain_operators(const at::Tensor& x, const Pass& pass, const BlockPlace& place) const;
  /// Queries, keys and values of normed tokens (B, tokens, width): (3, B, heads, tokens, head size).
  at::Tensor heads_of(const at::Tensor& normed) const;

  int64_t heads_, head_size_;
  RmsNorm norm_1_;
  Linear attn_, proj_;
  RmsNorm norm_2_;
  Mlp mlp_;  ///< w1 is the gate, w2 goes up and w3 down
};

/// The model of Algorithm Distillation with the pre-norm block (DICP's). Where fused kernels fit, blocks run
/// by them, as a whole or by sublayers.
class PreNormAd : public AlgorithmDistillation {
 public:
  PreNormAd(const ModelOptions& options, const ModelShape& shape, ParameterFactory factory);

  Loss loss(const Batch& batch, LossPositions positions, bool training) override;
  Predictions forward(const Batch& batch, LossPositions positions, bool training) override;
  bool rolling_slides() const override { return true; }
  std::string why_not_rolling() const override { return ""; }
  std::optional<Parts> parts() override;

 protected:
  ImaginationParts imagination_parts() const override;

 private:
  Tokens tokens_of(const Batch& batch, LossPositions positions) const;
  NewestStep newest_step() const;
  Tokens embedded(const Batch& batch, LossPositions positions) const;
  /// Blocks `first` … `end` − 1, the last of which returns the queries alone.
  at::Tensor through(const Tokens& tokens, int64_t first, int64_t end, LossPositions positions,
                     const DropoutRates& rates) const;
  /// The blocks' output at the queries (B, Q, width).
  at::Tensor encoded(const Batch& batch, LossPositions positions, const DropoutRates& rates) const;

  Linear embed_context_;
  Embedding embed_query_state_;
  std::vector<PreNormBlock> blocks_;
  Linear pred_action_;
};

}  // namespace adtrain
