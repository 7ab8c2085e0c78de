#pragma once

#include "model/kernels/fused/attention_backward/AttentionHalf.cuh"

/// Step 3, strips of tokens as keys.
namespace adtrain::kernels::backward_pass {

/// All queries that read the keys of a strip -> their dk and dv.
template <class V>
__device__ void AttentionHalf<V>::read_as_keys(int strip, int head) {
  Keys keys;
  pairs_.start(keys, strip, head);
  if (kStreams && !of_queries()) take_carried(keys, strip);
  pairs_.add_queries(keys, strip);
  if (of_queries()) {
    carry(keys, strip);
  } else {
    multiply_by(keys.dkey, kLn2);  // instead of q's log2 e
    turn_back_of(strip).apply(keys.dkey);
    store_head(dkey_, strip, kHeadSize * head, keys.dkey);
    store_head(dvalue_, strip, kHeadSize * head, keys.dvalue);
  }
}

/// The context's keys get their gradients from the queries first and then from the context. In between each
/// lane puts aside what it has summed.
template <class V>
__device__ void AttentionHalf<V>::carry(const Keys& keys, int strip) const {
#pragma unroll
  for (int i = 0; i < kHeadEights; ++i) {
    const float *dkey = keys.dkey[i].value, *dvalue = keys.dvalue[i].value;
    carried(strip, keys.head)[kWarp * i] = {packed(dkey[0], dkey[1]), packed(dkey[2], dkey[3]),
                                            packed(dvalue[0], dvalue[1]), packed(dvalue[2], dvalue[3])};
  }
}

template <class V>
__device__ void AttentionHalf<V>::take_carried(Keys& keys, int strip) const {
#pragma unroll
  for (int i = 0; i < kHeadEights; ++i) {
    const uint4 sums = carried(strip, keys.head)[kWarp * i];
    const float2 dkey[2] = {unpacked(sums.x), unpacked(sums.y)};
    const float2 dvalue[2] = {unpacked(sums.z), unpacked(sums.w)};
    keys.dkey[i] = {{dkey[0].x, dkey[0].y, dkey[1].x, dkey[1].y}};
    keys.dvalue[i] = {{dvalue[0].x, dvalue[0].y, dvalue[1].x, dvalue[1].y}};
  }
}

/// (parts, strips, heads, columns of a head / 8, lanes): the lane's first.
template <class V>
__device__ uint4* AttentionHalf<V>::carried(int strip, int head) const {
  uint4* const of_part = reinterpret_cast<uint4*>(job_.carried + int64_t{blockIdx.x} * P::kCarried);
  return of_part + (strip * kHeads + head) * kHeadEights * kWarp + threadIdx.x % kWarp;
}

/// Tokens that do not exist get 0.
template <class V>
__device__ void AttentionHalf<V>::store_head(Tile<kWidth> to, int strip, int column,
                                             const Sums (&sums)[kHeadEights]) const {
  const int token = kStrip * strip + place_.row;
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    const bool exists = token + 8 * half < tokens_;
#pragma unroll
    for (int eight = 0; eight < kHeadEights; ++eight) {
      const uint32_t pair = packed(sums[eight].value[2 * half], sums[eight].value[2 * half + 1]);
      to.set_pair(token + 8 * half, column + 8 * eight + place_.column, exists ? pair : 0);
    }
  }
}

}  // namespace adtrain::kernels::backward_pass
