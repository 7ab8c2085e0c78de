#pragma once

#include <cstdint>

#include <ATen/core/Tensor.h>

#include "base/MainGradients.h"
#include "kernels/DropoutDraw.h"
#include "kernels/Recomputation.h"
#include "kernels/primitives/DropoutMask.h"

namespace adtrain::kernels {

/// What the blocks of one forward pass on our own GPU kernels share.
struct BlockPass {
  /// `like` (B, …) is a tensor on the GPU. All masks of the pass are of one draw, the next of this thread.
  BlockPass(const at::Tensor& like, int64_t heads, double attention_rate, double hidden_rate,
            bool own_attention, MainGradients* main_gradients);

  /// The same for a run of some blocks for this.
  BlockPass running(PartRun for_this) const;

  /// Return dropout masks as int32 words: for hidden elements those of some matrices one after another, each
  /// (B, words of a sequence); (rows.words()) for attention. Each `number` is another place in the network.
  /// Undefined where both dropout rates keep everything.
  at::Tensor hidden_dropout_mask(at::IntArrayRef words_of_sequence, int64_t number) const;
  at::Tensor attention_dropout_mask(const AttentionRows& rows, int64_t number) const;
  /// Both, of `number` for attention and `number` + 1 for hidden elements, where possible by one kernel. With
  /// `beside_kernel_ahead` this kernel runs beside the end of the one ahead: see fill_block_dropout_masks().
  struct Masks {
    at::Tensor attention, hidden;
  };
  Masks dropout_masks(const AttentionRows& rows, at::IntArrayRef words_of_sequence, int64_t number,
                      bool beside_kernel_ahead) const;

  int64_t heads;
  bool own_attention;     ///< whether attention between sublayers runs our own kernels, else libtorch's
  bool trains;            ///< whether gradients are needed
  double attention_rate;  ///< dropout rate for libtorch's attention; our kernels round the probability
  KeepProbability keep_attention, keep_hidden;
  bool draw_is_older = false;     ///< whether the draw's tensors were there before this pass
  DropoutDraw draw;               ///< of the masks; undefined tensors where everything is kept
  MainGradients* main_gradients;  ///< null: parameters get their gradients from autograd, in their own type
  /// Whether a block by sublayers keeps nothing of its MLP's first product, and computes it again in its
  /// backward pass. Whole blocks always do.
  bool recomputes_mlp = false;
  PartRun run = PartRun::kForValues;  ///< what the blocks run for

 private:
  static MaskMatrices matrices_of(at::IntArrayRef words_of_sequence);
  at::Tensor words(int64_t count) const;
  MaskSource source(KeepProbability probability, int64_t number) const;
};

}  // namespace adtrain::kernels
