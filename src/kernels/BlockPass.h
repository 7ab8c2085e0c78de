#pragma once

#include <cstdint>

#include <ATen/core/Tensor.h>

#include "base/MainGradients.h"
#include "kernels/primitives/DropoutMask.h"

namespace adtrain::kernels {

/// What the blocks of one forward pass by our own GPU kernels have in common.
struct BlockPass {
  /// `like`: a tensor on the GPU. The seed of dropout is drawn from the default generator of its device.
  BlockPass(const at::Tensor& like, int64_t heads, double attention_rate, double hidden_rate,
            bool own_attention, MainGradients* main_gradients);

  /// int32 words of the dropout mask, (count) of hidden elements or (rows.words()) of the attention, another
  /// offset in the random stream for each `number`; undefined where everything is kept everywhere.
  at::Tensor hidden_dropout_mask(int64_t count, int64_t number) const;
  at::Tensor attention_dropout_mask(const AttentionRows& rows, int64_t number) const;

  int64_t heads;
  bool own_attention;     ///< whether attention between sublayers is by our own kernels, else libtorch's
  bool trains;            ///< whether gradients are asked for
  double attention_rate;  ///< of dropout, for libtorch's attention: ours keeps with a rounded probability
  KeepProbability keep_attention, keep_hidden;
  at::Tensor seed;                ///< int64 (1) on the GPU: of dropout; undefined where everything is kept
  MainGradients* main_gradients;  ///< null: parameters get their gradients from autograd, in their own type

 private:
  at::Tensor words(int64_t count) const;
  MaskSource source(KeepProbability probability, int64_t number) const;
};

}  // namespace adtrain::kernels
