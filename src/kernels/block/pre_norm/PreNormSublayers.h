#pragma once

#include <cstdint>
#include <vector>

#include <ATen/core/Tensor.h>

#include "kernels/BlockPass.h"
#include "kernels/TokenStreams.h"
#include "kernels/activation/GeluKind.h"
#include "kernels/rope/Rotary.h"

/// A pre-norm block by sublayers with attention between them, on a GPU and in 16 bit: as PostNormSublayers.h,
/// for blocks that are too large for the kernels of FusedPreNorm.h, for GPT-2's, and for those of chosen
/// pieces. PreNormBlock, Gpt2Block and ComposedBlock are the plain blocks. What the backward pass needs is
/// kept once: norms of LayerNorm and values of GELU are computed again from what goes into them.
namespace adtrain::kernels {

/// Of what a pre-norm block is made; those of PreNormBlock unless chosen.
struct PreNormPieces {
  bool layer_norm = false;              ///< else RMSNorm
  bool gelu = false;                    ///< with biases in the MLP; else SwiGLU without
  bool drops_attention_output = false;  ///< what attention adds to the residual; else the norms' inputs
  bool drops_mlp_output = false;        ///< and what the MLP, of GELU, adds to it
  GeluKind gelu_kind = GeluKind::kExact;
};

/// x (B, streams.tokens(), width), of a width that KernelPlan allows, -> its last `rows` rows (B, rows,
/// width). `parameters`: the block's nine in the order of PreNormBlock::parameters(). `rotary`
/// (streams.context, …): queries take the angles of the tokens whose positions they take. `streams` needs
/// masks only for libtorch's attention. `number`: the block's index in the pass, which gives it dropout masks
/// of its own. Differentiable once.
at::Tensor pre_norm_block_by_sublayers(const at::Tensor& x, const std::vector<at::Tensor>& parameters,
                                       const TokenStreams& streams, const Rotary& rotary, int64_t rows,
                                       int64_t number, const BlockPass& pass);

/// The same for a block of GPT-2's: x (B, streams.context, width), one stream; `parameters`: its twelve in
/// the order of Gpt2Block::parameters().
at::Tensor gpt2_block_by_sublayers(const at::Tensor& x, const std::vector<at::Tensor>& parameters,
                                   const TokenStreams& streams, int64_t rows, int64_t number,
                                   const BlockPass& pass);

struct PreNormAttentionInput {
  at::Tensor projected;  ///< (B, tokens, 3 width): in_proj(norm(x))
  at::Tensor residual;   ///< (B, rows, width): x
};
/// The part of a block before its attention, which the caller runs. x (B, tokens, width); `parameters`, each
/// weight with its bias: the norm's, which has none if it is RMSNorm, and in_proj's. `bias`: in_proj's, where
/// attention adds up its gradient (streamed_attention()) and it is not among the parameters. The rest is as
/// above.
PreNormAttentionInput pre_norm_before_attention(const at::Tensor& x,
                                                const std::vector<at::Tensor>& parameters,
                                                const PreNormPieces& pieces, int64_t rows, int64_t number,
                                                const BlockPass& pass, const at::Tensor& bias = {});
/// The part after it. Attention output and residual (B, rows, width) -> (B, rows, width). `parameters`:
/// out_proj's, the norm's, and the MLP's two, or the three weights of SwiGLU.
at::Tensor pre_norm_after_attention(const at::Tensor& attention_output, const at::Tensor& residual,
                                    const std::vector<at::Tensor>& parameters, const PreNormPieces& pieces,
                                    int64_t number, const BlockPass& pass);

}  // namespace adtrain::kernels
