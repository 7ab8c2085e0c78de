#pragma once

#include <cstdint>

#include <ATen/core/Tensor.h>

#include "base/MainGradients.h"
#include "kernels/TokenStreams.h"
#include "kernels/attention/DistancePenalty.h"
#include "kernels/norm/HeadNorms.h"

namespace adtrain::kernels {

/// Attention of the last `rows` tokens, each over itself and the tokens before it, by our own kernels that
/// stream keys and values; see StreamingAttention.h, and TwoStreams.h for queries over a context. qkv:
/// queries, keys and values (3, B, heads, tokens, head size), bf16 or fp16 with heads of 16, 32 or 64, of any
/// strides that are multiples of 8 and whose last is 1 -> (B, rows, heads · head size). Any sequence length
/// and, with ALiBi, any number of heads.
///
/// `norms`: of queries and keys, before attention, with heads of 32 or 64, which are not kept but computed
/// again. `main_gradients`: see MainGradients; null where parameters get their gradients from autograd.
///
/// `projection_bias` (3 · heads · head size): of the projection that qkv is, whose gradient is the sum of
/// qkv's over the tokens. It gets it from here, and so the projection must not give it one; undefined where
/// it does. Not together with norms, nor with two streams.
///
/// `streams`: how many queries there are, and the segments of packed rows, which have none; its masks are not
/// read.
///
/// Autograd records it; the gradient of qkv has qkv's strides, and repeats bit for bit. Dropout's seed is
/// drawn from the default generator of the device. KernelPlan::own_attention() says for which networks it is
/// meant.
at::Tensor streamed_attention(const at::Tensor& qkv, int64_t rows, DistancePenalty penalty,
                              double dropout_rate, const HeadNorms& norms = {},
                              MainGradients* main_gradients = nullptr, const TokenStreams& streams = {},
                              const at::Tensor& projection_bias = {});

}  // namespace adtrain::kernels
