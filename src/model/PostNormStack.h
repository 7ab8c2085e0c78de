#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include <ATen/core/Tensor.h>

#include "base/MainGradients.h"
#include "kernels/BlockPass.h"
#include "kernels/plan/KernelPlan.h"
#include "model/Attention.h"
#include "model/BlockRecomputation.h"
#include "model/Layers.h"
#include "model/ModelOptions.h"
#include "model/RollingKeys.h"

namespace adtrain {

/// torch.nn.TransformerEncoderLayer with GELU: norm(x + attention(x)), then norm(x + MLP(x)), the MLP four
/// times as wide.
class PostNormBlock {
 public:
  PostNormBlock(ParameterFactory& factory, const std::string& name, const ModelOptions& options);

  /// What the blocks of one pass share.
  struct Pass {
    TokenStreams streams;
    DropoutRates rates;
    kernels::KernelPlan::Blocks blocks;
    BlockRecomputation recomputation;
    std::optional<kernels::BlockPass> own;  ///< a value where kernels of our own run them
  };
  /// x (B, tokens, width) -> the last `place.rows` tokens (B, rows, width), as the plan says.
  at::Tensor in_pass(const at::Tensor& x, const Pass& pass, const BlockPlace& place) const;
  /// The same of rows' newest tokens x (B, tokens, width), without dropout, by plain operators.
  at::Tensor newest(const at::Tensor& x, RollingKeys& keys, const NewestTokens& tokens) const;
  /// x (B, tokens, width) without dropout, by plain operators: the same shape.
  at::Tensor reading(const at::Tensor& x, const Attend& attend) const;
  /// In the order of making.
  std::vector<at::Tensor> parameters() const;

 private:
  at::Tensor by_plain_operators(const at::Tensor& x, const Pass& pass, const BlockPlace& place) const;
  /// Queries, keys and values of x (B, tokens, width): (3, B, heads, tokens, head size).
  at::Tensor heads_of(const at::Tensor& x) const;

  int64_t heads_, head_size_;
  Linear in_proj_, out_proj_;
  LayerNorm norm1_;
  Linear linear1_, linear2_;
  LayerNorm norm2_;
};

/// Parameters and blocks that AD with the post-norm block and compressed context share; their checkpoints
/// have the same tensors. Plain AD never uses the first three, so only the last bucket of gradients waits for
/// them.
struct PostNormStack {
  PostNormStack(ParameterFactory& factory, const ModelOptions& options, const ModelShape& shape);

  /// Embedded tokens through all blocks; returns the last `rows` tokens. `streams` need masks for the plain
  /// blocks and for libtorch's attention alone (see KernelPlan::reads_masks). Blocks run as `plan` says;
  /// fused kernels add their parameters' gradients to `main_gradients` if there is one.
  at::Tensor encode(const at::Tensor& x, const TokenStreams& streams, int64_t rows, const DropoutRates& rates,
                    const kernels::KernelPlan& plan, const BlockRecomputation& recomputation,
                    MainGradients* main_gradients) const;

  /// Layers `first` … `end` − 1 of that pass, the last of which returns the last `rows` tokens.
  at::Tensor through(const at::Tensor& x, const TokenStreams& streams, int64_t rows, int64_t first,
                     int64_t end, const DropoutRates& rates, const kernels::KernelPlan& plan,
                     const BlockRecomputation& recomputation, MainGradients* main_gradients) const;

  Linear pred_token_type;
  at::Tensor compress_start_token, compress_end_token;  ///< (1, 1, width)
  Linear embed_context;
  Embedding token_type_embedding;
  Embedding embed_query_state;
  at::Tensor pos_embedding;  ///< (1, n_transit, width)
  std::vector<PostNormBlock> layers;
  Linear pred_action;

 private:
  int64_t heads_;
};

}  // namespace adtrain
