#pragma once

#include "kernels/block/attention_backward/AttentionSublayer.cuh"

/// Step 3: warp tiles of tokens as keys.
namespace adtrain::kernels::backward_pass {

/// Whichever warp is free takes the next head of a warp tile, those that most queries read first: so all end
/// at about the same time. Which warp computes a sum does not change it.
template <class V>
__device__ void AttentionSublayer<V>::read_as_keys() {
  const int count = (warp_tiles_ - first_warp_tile()) * kHeads;
#pragma unroll 1
  for (int keys = take_keys(); keys < count; keys = take_keys()) {
    read_as_keys(first_warp_tile() + keys / kHeads, keys % kHeads);
  }
}

template <class V>
__device__ int AttentionSublayer<V>::take_keys() const {
  int taken = 0;
  if (threadIdx.x % kWarp == 0) taken = count_on(next_keys_);
  return __shfl_sync(kAllLanes, taken, 0);
}

/// Computes dk and dv of a warp tile's keys from all queries that read them.
template <class V>
__device__ void AttentionSublayer<V>::read_as_keys(int warp_tile, int head) {
  Keys keys;
  pairs_.start(keys, warp_tile, head);
  if (kStreams && !of_queries()) take_carried(keys, warp_tile);
  pairs_.add_queries(keys, warp_tile);
  if (of_queries()) {
    carry(keys, warp_tile);
  } else {
    multiply_by(keys.dkey, kLn2);  // replaces q's factor log2 e
    rotate_back(warp_tile).apply(keys.dkey);
    store_head(dkey_, warp_tile, kHeadSize * head, keys.dkey);
    store_head(dvalue_, warp_tile, kHeadSize * head, keys.dvalue);
  }
}

/// The context's keys get gradients first from the queries' round and then from the context's. Between these,
/// each lane stores its sums in global memory.
template <class V>
__device__ void AttentionSublayer<V>::carry(const Keys& keys, int warp_tile) const {
#pragma unroll
  for (int i = 0; i < kHeadEights; ++i) {
    const float *dkey = keys.dkey[i].value, *dvalue = keys.dvalue[i].value;
    carried(warp_tile, keys.head)[kWarp * i] = {packed(dkey[0], dkey[1]), packed(dkey[2], dkey[3]),
                                                packed(dvalue[0], dvalue[1]), packed(dvalue[2], dvalue[3])};
  }
}

template <class V>
__device__ void AttentionSublayer<V>::take_carried(Keys& keys, int warp_tile) const {
#pragma unroll
  for (int i = 0; i < kHeadEights; ++i) {
    const uint4 sums = carried(warp_tile, keys.head)[kWarp * i];
    const float2 dkey[2] = {unpacked(sums.x), unpacked(sums.y)};
    const float2 dvalue[2] = {unpacked(sums.z), unpacked(sums.w)};
    keys.dkey[i] = {{dkey[0].x, dkey[0].y, dkey[1].x, dkey[1].y}};
    keys.dvalue[i] = {{dvalue[0].x, dvalue[0].y, dvalue[1].x, dvalue[1].y}};
  }
}

/// The lane's first element in (parts, warp tiles, heads, columns of a head / 8, lanes).
template <class V>
__device__ uint4* AttentionSublayer<V>::carried(int warp_tile, int head) const {
  uint4* const of_part = reinterpret_cast<uint4*>(job_.carried + int64_t{blockIdx.x} * P::kCarried);
  return of_part + (warp_tile * kHeads + head) * kHeadEights * kWarp + threadIdx.x % kWarp;
}

/// Stores a head's gradients; those of tokens that do not exist are 0.
template <class V>
__device__ void AttentionSublayer<V>::store_head(Tile<kWidth> to, int warp_tile, int column,
                                                 const Sums (&sums)[kHeadEights]) const {
  const int first = kWarpTile * warp_tile, token = first + place_.row;
  if constexpr (kHeadSize == 8) {
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const uint32_t pair = packed(sums[0].value[2 * half], sums[0].value[2 * half + 1]);
      to.set_pair(token + 8 * half, column + place_.column, token + 8 * half < tokens_ ? pair : 0);
    }
  } else {
#pragma unroll
    for (int i = 0; i < kHeadEights; i += 2) {
      LeftFragment pairs = as_left(sums[i], sums[i + 1]);
#pragma unroll
      for (int part = 0; part < 4; ++part) {
        if (token + 8 * (part % 2) >= tokens_) pairs.part[part] = 0;
      }
      set_left(from_row(to, first), 0, column + 8 * i, pairs);
    }
  }
}

}  // namespace adtrain::kernels::backward_pass
