#pragma once

#include <cstddef>
#include <vector>

#include <ATen/core/Tensor.h>

#include "kernels/attention/LastQuery.h"
#include "kernels/block/SublayerBlock.h"

namespace adtrain::kernels {

/// Attention of a block of which the last token alone is needed, with its projections, as one part (see
/// SublayerBlock.h). With one query q a head, neither keys nor values are computed. The score of a token x is
/// q · (Wk x + bk) = (Wkᵀ q) · x + q · bk, whose last term is the same for all tokens, so that softmax takes
/// it off; and the output Σ a (Wv x + bv) is Wv (Σ a x) + bv Σ a. So the tokens are multiplied with one
/// vector for each head, backward with two, instead of two matrices. The bias of keys gets no gradient.
///
/// x (B, tokens, width) -> the attention output (B, 1, width) and the last token's x. Parameters: the weight
/// and the bias of the projection to queries, keys and values.
class LastTokenAttention {
 public:
  enum Parameter : size_t { kWeight, kBias, kParameters };

  /// `dropout_number`: of the attention's mask in the pass.
  Tensors forward(at::TensorList inputs, at::TensorList parameters, const BlockCall& call,
                  int64_t dropout_number);
  Tensors backward(Tensors d_outputs, at::TensorList parameters, const GradientAccumulation& place);

 private:
  /// For the kernels between products.
  LastQuery kernels_call() const;

  at::Tensor x_;
  int64_t heads_ = 0;
  at::Tensor query_;          ///< (B, 1, width)
  at::Tensor vectors_;        ///< (2 heads, B, width): Wvᵀ d_output of each head, then Wkᵀ q
  at::Tensor probabilities_;  ///< fp32 (B, heads, tokens)
  at::Tensor kept_;           ///< dropout's words; undefined: all weights are kept
  float kept_scale_ = 1;
  at::Tensor weights_;   ///< (B, 2 heads, tokens): with dropout; then the gradients of the scores
  at::Tensor sums_;      ///< fp32 (B, heads): of the weights
  at::Tensor averages_;  ///< (B, heads, width): Σ a x
};

}  // namespace adtrain::kernels
