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

/// x + attention(norm(x)), then x + MLP(norm(x)), the MLP four times as wide with GELU in its tanh form, as
/// in GPT-2.
class Gpt2Block {
 public:
  Gpt2Block(ParameterFactory& factory, const std::string& name, const ModelOptions& options);

  /// What the blocks of one pass share.
  struct Pass {
    TokenStreams streams;
    DropoutRates rates;
    bool recomputes_mlp = false;
    std::optional<kernels::BlockPass> own;  ///< a value where our own kernels run the blocks
  };
  /// x (B, tokens, width) -> the last `place.rows` tokens (B, rows, width).
  at::Tensor in_pass(const at::Tensor& x, const Pass& pass, const BlockPlace& place) const;
  /// The same of rows' newest tokens x (B, tokens, width), without dropout.
  at::Tensor newest(const at::Tensor& x, RollingKeys& keys, const NewestTokens& tokens) const;
  /// In the order of making.
  std::vector<at::Tensor> parameters() const;

 private:
  /// in_pass without our own kernels.
  at::Tensor by_plain_operators(const at::Tensor& x, const Pass& pass, const BlockPlace& place) const;
  /// Queries, keys and values of normed tokens (B, tokens, width): (3, B, heads, tokens, head size).
  at::Tensor heads_of(const at::Tensor& normed) const;

  int64_t heads_, head_size_;
  LayerNorm ln_1_;
  Linear c_attn_, c_proj_;
  LayerNorm ln_2_;
  Mlp mlp_;
};

/// GPT-2 over state, action and reward tokens: s a r s a r … s. Each state token predicts the action after
/// it, so one pass gives the predictions of every prefix, and published training reads them all (kAll).
/// next_states are not read, as the next state follows as a token.
class Gpt2Ad : public AlgorithmDistillation {
 public:
  Gpt2Ad(const ModelOptions& options, const ModelShape& shape, ParameterFactory factory);

  Loss loss(const Batch& batch, LossPositions positions, bool training) override;
  Predictions forward(const Batch& batch, LossPositions positions, bool training) override;
  std::string why_not_rolling() const override { return ""; }
  std::optional<Parts> parts() override;

 private:
  /// (B, tokens, width), without positions.
  at::Tensor tokens(const Batch& batch) const;
  /// With positions, by plain operators and by one kernel.
  at::Tensor placed_tokens(const Batch& batch) const;
  at::Tensor placed_tokens_by_kernel(const Batch& batch) const;
  NewestStep newest_step() const;
  /// Tokens with their positions. All of them are in one stream; the queries of kLast are the last one.
  Tokens embedded(const Batch& batch, LossPositions positions) const;
  /// Blocks `first` … `end` − 1, the last of which returns the last token alone for kLast.
  at::Tensor through(const Tokens& tokens, int64_t first, int64_t end, LossPositions positions,
                     const DropoutRates& rates) const;
  /// What the head reads in training, and in other passes.
  at::Tensor encoded(const Batch& batch, LossPositions positions, bool training) const;
  /// x (B, …, width) from the last block -> what the head reads, at the states.
  at::Tensor at_states(const at::Tensor& x) const;

  Embedding embed_state_, embed_action_;
  Linear embed_reward_;
  Embedding wpe_;
  std::vector<Gpt2Block> blocks_;
  LayerNorm ln_f_;
  Linear pred_action_;
};

}  // namespace adtrain
