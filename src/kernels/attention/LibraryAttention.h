#pragma once

#include <cstdint>

#include <ATen/core/Tensor.h>

#include "kernels/TokenStreams.h"
#include "kernels/rope/Rotary.h"

namespace adtrain::kernels {

/// Scaled dot-product attention by libtorch. On a GPU it runs libtorch's attention kernels, else operators,
/// which define what our own kernels compute. Queries (B, heads, rows, head size) of the last tokens, keys
/// and values (B, heads, streams.tokens(), head size), all already rotated -> (B, rows, heads · head size).
/// `streams` must have masks. On a GPU libtorch draws dropout's masks from the device's generator, for all
/// sequences at once.
at::Tensor library_attention(const at::Tensor& queries, const at::Tensor& keys, const at::Tensor& values,
                             const TokenStreams& streams, double dropout_rate);
/// The same for queries, keys and values (3, B, heads, streams.tokens(), head size), usually a view of a
/// fused projection. Queries and keys are rotated first. `rotary` covers all tokens, or is undefined for no
/// rotation.
at::Tensor library_attention(const at::Tensor& qkv, int64_t rows, const TokenStreams& streams,
                             const Rotary& rotary, double dropout_rate);

/// While there is one, libtorch's attention leaves out cuDNN's kernels, which are compiled anew for each
/// shape, 0.2 s each: more than a rollout's step by far, whose rows are longer and others at each. A setting
/// of the whole process; other threads see it, and none may make another one meanwhile.
class AttentionOfChangingShapes {
 public:
  AttentionOfChangingShapes();
  ~AttentionOfChangingShapes();
  AttentionOfChangingShapes(const AttentionOfChangingShapes&) = delete;
  AttentionOfChangingShapes& operator=(const AttentionOfChangingShapes&) = delete;

 private:
  bool allowed_;  ///< before
};

/// Queries or keys (…, tokens, head size) with rotary positions, which are of all these tokens.
at::Tensor rotated(const at::Tensor& x, const Rotary& rotary);

}  // namespace adtrain::kernels
