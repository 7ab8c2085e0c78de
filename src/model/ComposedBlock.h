#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include <ATen/core/Tensor.h>

#include "kernels/BlockPass.h"
#include "kernels/attention/DistancePenalty.h"
#include "kernels/norm/Norm.h"
#include "model/Attention.h"
#include "model/BlockPieces.h"
#include "model/BlockRecomputation.h"
#include "model/Initialisation.h"
#include "model/Layers.h"
#include "model/Mlp.h"
#include "model/RollingKeys.h"

namespace adtrain {

/// LayerNorm where it has a bias, else RMSNorm; over the last dimension.
struct ChosenNorm {
  at::Tensor weight;
  at::Tensor bias;

  static ChosenNorm of(ParameterFactory& factory, const std::string& name, int64_t width, NormKind kind);
  kernels::NormWeights weights() const { return {weight, bias}; }
  /// Normalises x after dropout.
  at::Tensor operator()(const at::Tensor& x, double dropout_rate = 0) const;
};

enum class AttentionKernels {
  kOperators,  ///< scores as a mask, or streams with rotary positions
  kCudnn,      ///< see cudnn_attention()
  kStreamed    ///< see streamed_attention()
};

/// How the tokens of one pass know their order; what the choice does not use is undefined.
struct TokenOrder {
  TokenStreams streams;
  Rotary rotary;     ///< of all tokens
  at::Tensor alibi;  ///< see alibi_scores; where it is defined, attention reads nothing else of this
  /// Which kernels run attention, and the penalty for those that need no scores.
  AttentionKernels kernels = AttentionKernels::kOperators;
  kernels::DistancePenalty penalty = kernels::DistancePenalty::kNone;
};

/// Where dropout acts, in one pass; 0 where it does not. The preset says it, not the pieces.
struct ComposedDropout {
  double tokens = 0;            ///< of the embedded tokens: xland
  double norm_input = 0;        ///< of what the norms before sublayers take: pre_norm
  double attention_output = 0;  ///< of what attention adds to the residual stream: vintix
  double attention_weights = 0;

  static ComposedDropout of(TransformerBlock preset, const DropoutRates& rates);
};

/// What the blocks of one pass share.
struct ComposedPass {
  TokenOrder order;
  ComposedDropout dropout;
  std::optional<kernels::BlockPass> sublayers;  ///< a value where blocks run by sublayers
  /// Whether our own kernels run what stands between products, of whatever weights: without gradients and
  /// dropout.
  bool around_products = false;
  bool recomputes_mlp = false;
};

/// x + attention(norm(x)), then x + MLP(norm(x)), of chosen pieces.
class ComposedBlock {
 public:
  ComposedBlock(ParameterFactory& factory, const std::string& name, const ModelOptions& options,
                const Initialisation& initial);

  /// x (B, tokens, width) -> the last `place.rows` tokens (B, rows, width).
  at::Tensor in_pass(const at::Tensor& x, const ComposedPass& pass, const BlockPlace& place) const;
  /// The same of rows' newest tokens x (B, tokens, width), without dropout.
  at::Tensor newest(const at::Tensor& x, RollingKeys& keys, const NewestTokens& tokens) const;
  /// What a StackDecoder would run, once newest() has run; nothing of pieces and weights that it is not for.
  /// `x`: an input.
  std::optional<kernels::StackableBlock> stackable(const at::Tensor& x, RollingKeys& keys) const;
  /// x (B, tokens, width) without dropout, by plain operators: the same shape. `rotary` is of these tokens,
  /// and undefined where the block has no rotary positions.
  at::Tensor reading(const at::Tensor& x, const Rotary& rotary, const Attend& attend) const;
  /// In the order of making.
  std::vector<at::Tensor> parameters() const;

 private:
  /// For pieces of which KernelPlan says so. The pass's dropout gives attention its rate and says where the
  /// rate of `sublayers` acts.
  at::Tensor by_sublayers(const at::Tensor& x, const ComposedPass& pass, const BlockPlace& place) const;
  /// The last `rows` tokens, without gradients and dropout, of which our own kernels run all but the
  /// products; `attend` maps the output of qkv_ to attention's.
  template <class OfProjected>
  at::Tensor around_products(const at::Tensor& x, int64_t rows, const NormProducts& norm_products,
                             OfProjected&& attend) const;
  NormProducts norm_products(const at::Tensor& x) const;
  /// Attention over kept keys of what qkv_ returned; our own kernel norms queries and keys itself.
  at::Tensor newest_attention(const at::Tensor& projected, RollingKeys& keys,
                              const NewestTokens& tokens) const;
  /// Attention of queries, keys and values as heads_of() returns them, once they have their positions.
  static at::Tensor attended(const at::Tensor& qkv, const Rotary& rotary, const Attend& attend);
  /// The output of qkv_ (B, tokens, 3 width) -> queries, keys and values (3, B, heads, tokens, head size).
  at::Tensor heads_of(const at::Tensor& projected) const;
  /// The same without the norms of queries and keys.
  at::Tensor plain_heads_of(const at::Tensor& projected) const;
  /// Attention's output (B, rows, width). `main_gradients`: as in BlockPass; null for none.
  /// `projection_bias`: the bias whose gradient streamed attention computes, too; undefined for none.
  at::Tensor attention(const at::Tensor& projected, const TokenOrder& order, int64_t rows,
                       double dropout_rate, MainGradients* main_gradients,
                       const at::Tensor& projection_bias = {}) const;
  Mlp mlp() const { return {gate_, up_, down_}; }

  int64_t heads_, head_size_;
  ChosenNorm norm_1_;
  Linear qkv_;  ///< rows: all heads' queries, then keys, then values
  /// Over the features of a head, the same for all heads; undefined for none.
  ChosenNorm query_norm_, key_norm_;
  Linear out_;
  ChosenNorm norm_2_;
  Linear gate_;  ///< SwiGLU's; undefined for GELU
  Linear up_, down_;
};

}  // namespace adtrain
