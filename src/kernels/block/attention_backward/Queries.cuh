#pragma once

#include "kernels/block/attention_backward/AttentionSublayer.cuh"

/// Step 3: warp tiles of tokens as queries.
namespace adtrain::kernels::backward_pass {

/// Computes dq of the warp's queries from all keys that they read.
template <class V>
__device__ void AttentionSublayer<V>::read_as_queries(uint32_t (&dquery)[P::kTilesOfWarp][kEights][2]) {
#pragma unroll
  for (int own = 0; own < P::kTilesOfWarp; ++own) {
    if (one_output_tile() && own > 0) break;
    const int warp_tile = one_output_tile() ? round_.first_output : warp_tile_of(own);
    if (!has_output(warp_tile)) continue;
#pragma unroll 1
    for (int head = one_output_tile() ? warp_ : 0; head < kHeads; head += one_output_tile() ? P::kWarps : 1) {
      Sums sums[kHeadEights];
      read_as_queries(warp_tile, head, sums);
#pragma unroll
      for (int eight = 0; eight < kEights; ++eight) {
        const float* value = sums[eight % kHeadEights].value;
        if (eight / kHeadEights == head) {
          dquery[own][eight][0] = packed(value[0], value[1]);
          dquery[own][eight][1] = packed(value[2], value[3]);
        }
      }
    }
  }
}

template <class V>
__device__ void AttentionSublayer<V>::read_as_queries(int warp_tile, int head, Sums (&dquery)[kHeadEights]) {
  Queries queries;
  pairs_.start(queries, warp_tile, head);
  const KeyWords words = pairs_.add_keys(queries, warp_tile);
  if (of_queries()) add_own_keys(queries, warp_tile, words);

  multiply_by(queries.dquery, 1.0f / std::sqrt(static_cast<float>(kHeadSize)));
  rotate_back(warp_tile).apply(queries.dquery);
#pragma unroll
  for (int i = 0; i < kHeadEights; ++i) dquery[i] = queries.dquery[i];
}

/// Adds the queries' own keys, and replaces these keys and values by their gradients. `words`: the dropout
/// words of the context's keys in the same warp tile.
template <class V>
__device__ void AttentionSublayer<V>::add_own_keys(Queries& queries, int warp_tile,
                                                   const KeyWords& words) const {
  const Tile<kWidth> own_key = from_row(own_key_, kWarpTile * warp_tile),
                     own_value = from_row(own_value_, kWarpTile * warp_tile);
  const HeadRows<kHeadSize> key = head_rows<kHeadSize>(own_key, queries.column),
                            value = head_rows<kHeadSize>(own_value, queries.column);
  Sums dkey[kHeadEights];  // with rope, to be rotated back first
  __syncwarp();
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    const int row = place_.row + 8 * half;
    const bool kept = !kDropout || (words.word[half] >> (kWarpTile * warp_tile + row) % 32 & 1) != 0;
    const float minus_delta = queries.minus_delta.value[2 * half];
    const float weight =
        exp2_of(product_of_rows(queries.query, key, half) + queries.minus_log.value[2 * half]);
    const float dweight = product_of_rows(queries.d_attention_output, value, half);
    const float dscore = weight * (kept ? dweight + minus_delta : minus_delta);
#pragma unroll
    for (int eight = 0; eight < kHeadEights; ++eight) {
      const float2 q = unpacked(queries.query.part[eight][half]), k = unpacked(key.part[eight][half]);
      const float2 d_attention_output = unpacked(queries.d_attention_output.part[eight][half]);
      float* const dquery = queries.dquery[eight].value + 2 * half;
      dquery[0] = fmaf(dscore, k.x, dquery[0]);
      dquery[1] = fmaf(dscore, k.y, dquery[1]);
      const int column = queries.column + 8 * eight + place_.column;
      if constexpr (kHasRope) {
        dkey[eight].value[2 * half] = kLn2 * dscore * q.x;
        dkey[eight].value[2 * half + 1] = kLn2 * dscore * q.y;
      } else {
        own_key.set_pair(row, column, packed(kLn2 * dscore * q.x, kLn2 * dscore * q.y));
      }
      own_value.set_pair(row, column,
                         kept ? packed(weight * d_attention_output.x, weight * d_attention_output.y) : 0);
    }
  }
  if constexpr (kHasRope) {
    rotate_back(warp_tile).apply(dkey);
    store_head(own_key_, warp_tile, queries.column, dkey);
  }
}

/// The product of the lane's first rows or, half = 1, its second.
template <class V>
__device__ float AttentionSublayer<V>::product_of_rows(const HeadRows<kHeadSize>& left,
                                                       const HeadRows<kHeadSize>& right, int half) {
  float sum = 0.0f;
#pragma unroll
  for (int eight = 0; eight < kHeadEights; ++eight) {
    const float2 a = unpacked(left.part[eight][half]), b = unpacked(right.part[eight][half]);
    sum = fmaf(a.x, b.x, fmaf(a.y, b.y, sum));
  }
  return quad_sum(sum);
}

/// Stores dq in the tile of q: zeros for warp tiles that have keys only.
template <class V>
__device__ void AttentionSublayer<V>::store_dquery(
    const uint32_t (&dquery)[P::kTilesOfWarp][kEights][2]) const {
#pragma unroll
  for (int own = 0; own < P::kTilesOfWarp; ++own) {
    const int warp_tile = warp_tile_of(own);
    if (!has_keys(warp_tile) || (one_output_tile() && has_output(warp_tile))) continue;
#pragma unroll
    for (int eight = 0; eight < kEights; eight += 2) {
      LeftFragment pairs = {{dquery[own][eight][0], dquery[own][eight][1], dquery[own][eight + 1][0],
                             dquery[own][eight + 1][1]}};
      if (one_output_tile()) pairs = {};
      set_left(from_row(dquery_, kWarpTile * warp_tile), 0, 8 * eight, pairs);
    }
  }
  if (one_output_tile()) {
    const int token = kWarpTile * round_.first_output + place_.row;
#pragma unroll
    for (int eight = 0; eight < kEights; ++eight) {
      if (warp_ != eight / kHeadEights) continue;
      dquery_.set_pair(token, 8 * eight + place_.column, dquery[0][eight][0]);
      dquery_.set_pair(token + 8, 8 * eight + place_.column, dquery[0][eight][1]);
    }
  }
}

}  // namespace adtrain::kernels::backward_pass
