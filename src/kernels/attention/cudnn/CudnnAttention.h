#pragma once

#include <ATen/core/Tensor.h>

#include "kernels/attention/DistancePenalty.h"

/// Causal attention by cuDNN's fused kernels, which keep no matrix of scores.
namespace adtrain::kernels {

/// Attention of each token over itself and the tokens before it. qkv: queries, keys and values (3, B, heads,
/// tokens, head size), bf16 or fp16, of any strides whose last is 1 -> (B, tokens, heads · head size).
/// Autograd records it; the gradient of qkv has qkv's strides.
///
/// cuDNN compiles kernels for each new shape, which takes a good part of a second: it is for training, where
/// shapes repeat. They are kept for the process; any thread may call. With deterministic algorithms (see
/// at::globalContext) gradients repeat bit for bit. Throws EnvironmentError where cuDNN supports no such
/// attention on this GPU; KernelPlan::cudnn_attention() says for which networks it is meant.
at::Tensor cudnn_attention(const at::Tensor& qkv, DistancePenalty penalty, double dropout_rate);

}  // namespace adtrain::kernels
