#pragma once

#include <cstdint>

#include <ATen/core/Tensor.h>

#include "kernels/attention/DistancePenalty.h"
#include "kernels/norm/HeadNorms.h"

namespace adtrain::kernels {

/// The keys and values that one block's attention keeps, of the last `window` tokens of rows that grow by one
/// token at a time: token t is in place t % window. Copies share the tensors. For one thread.
struct KeyValueRing {
  at::Tensor keys, values;  ///< (B, heads, window, head size)
  // For decode_attention alone:
  at::Tensor key_norms;  ///< fp32 (B, heads)
  at::Tensor arrivals;   ///< int32 (B, heads), 0

  /// With room for `window` keys like `key` (B, heads, 1, head size), whose values are of the same type.
  static KeyValueRing like(const at::Tensor& key, int64_t window);
  int64_t window() const { return keys.size(2); }
};

/// Puts the newest token's key and value into the ring, and returns the attention of its query over the
/// tokens that the ring has then: (B, 1, heads · head size). One kernel of ours. query, key, value: (B,
/// heads, 1, head size), bf16 or fp16, in heads of 32, 64 or 128, as they are before `norms`, if these are
/// defined; `tokens`: int64 (1), how many tokens there have been, the newest among them. All are on one GPU,
/// and the host waits for none of them: it may be captured, and replayed after `tokens` has changed. No
/// gradients.
at::Tensor decode_attention(const at::Tensor& query, const at::Tensor& key, const at::Tensor& value,
                            const KeyValueRing& ring, const at::Tensor& tokens, DistancePenalty penalty,
                            const HeadNorms& norms = {});

}  // namespace adtrain::kernels
