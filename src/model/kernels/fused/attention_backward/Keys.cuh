#pragma once

#include "model/kernels/fused/attention_backward/AttentionHalf.cuh"

/// Step 3, strips of tokens as keys.
namespace adtrain::kernels::backward_pass {

/// All queries that read the keys of a strip -> their dk and dv.
template <class V>
__device__ void AttentionHalf<V>::read_as_keys(int strip, int head) {
  const int column = kHeadSize * head, token = kStrip * strip + place_.row;
  Keys keys;
  keys.head = head;
  keys.rotation = 7 - token % 32;
  const bool partly_padding = kStrip * strip < first_token();
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    const int key = token + 8 * half;
    keys.earliest[half] = job_.shape.causal ? key + of_queries() : 0;
    if (partly_padding && key < first_token()) keys.earliest[half] = kMostTokens;
  }
  keys.key = head_rows<kHeadSize>(from_row(key_, kStrip * strip), column);
  keys.value = head_rows<kHeadSize>(from_row(value_, kStrip * strip), column);
#pragma unroll
  for (int i = 0; i < kHeadEights; ++i) keys.dkey[i] = keys.dvalue[i] = no_sums();
  if (kStreams && !of_queries()) take_carried(keys, strip);

  // The edges: the first strip, and the last one where it is not whole; where some keys are padding, all.
  const int first = job_.shape.causal ? max(strip, round_.first_output) : round_.first_output,
            whole = partly_padding ? first + 1 : tokens_ / kStrip;
  const uint32_t* const words = words_of(head, strip / 2);
#pragma unroll 1
  for (int edge = first; edge < strips_; edge = max(edge + 1, whole)) {
    add_queries<true>(keys, edge, query_words_of_edge(words, edge));
  }
  if (first + 1 < whole) {
    const uint32_t* words_now = words + kStrip * (first + 1) - round_.skipped + place_.column;
    QueryWords next = query_words(words_now);
#pragma unroll 2
    for (int queries = first + 1; queries < whole; ++queries) {
      const QueryWords now = next;
      if (queries + 1 < whole) words_now += kStrip;
      next = query_words(words_now);
      add_queries<false>(keys, queries, now);
    }
  }

  if (of_queries()) {
    carry(keys, strip);
  } else {
    multiply_by(keys.dkey, kLn2);  // instead of q's log2 e
    turn_back_of(strip).apply(keys.dkey);
    store_head(dkey_, strip, column, keys.dkey);
    store_head(dvalue_, strip, column, keys.dvalue);
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

/// Scores lie with keys as rows. Edge: some queries come before some of the keys.
template <class V>
template <bool Edge>
__device__ void AttentionHalf<V>::add_queries(Keys& keys, int strip, const QueryWords& words) {
  const int row = kStrip * strip, column = kHeadSize * keys.head;
  const Tile<kWidth> query = from_row(query_, row), dread = from_row(dread_, row);
  const float* const minus_log = minus_log_ + kMostTokens * keys.head + place_.column + row;
  const float* const minus_delta = minus_delta_ + kMostTokens * keys.head + place_.column + row;
  Sums scores[2] = {sums_from(minus_log), sums_from(minus_log + 8)};
  Sums dweights[2] = {sums_from(minus_delta), sums_from(minus_delta + 8)};
  const uint32_t minus_deltas[2] = {packed(dweights[0].value[0], dweights[0].value[1]),
                                    packed(dweights[1].value[0], dweights[1].value[1])};
  multiply_with_rows<kHeadSize>(scores, keys.key, query, column);
  multiply_with_rows<kHeadSize>(dweights, keys.value, dread, column);

  LeftFragment weights, dscores;
#pragma unroll
  for (int eight = 0; eight < 2; ++eight) {
    const uint32_t first = __funnelshift_l(words.word[eight][0], words.word[eight][0], keys.rotation);
    const uint32_t second = __funnelshift_l(words.word[eight][1], words.word[eight][1], keys.rotation);
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      float weight[2];
#pragma unroll
      for (int i = 0; i < 2; ++i) {
        weight[i] = exp2_of(scores[eight].value[2 * half + i]);
        if (Edge && row + 8 * eight + place_.column + i < keys.earliest[half]) weight[i] = 0.0f;
      }
      const uint32_t pair = packed(weight[0], weight[1]);
      const uint32_t dpair = packed(dweights[eight].value[2 * half], dweights[eight].value[2 * half + 1]);
      uint32_t mask = ~0u;
      if constexpr (kDropout) mask = half == 0 ? pair_mask<0>(first, second) : pair_mask<1>(first, second);
      weights.part[2 * eight + half] = pair & mask;
      dscores.part[2 * eight + half] = multiplied(pair, (dpair & mask) | (minus_deltas[eight] & ~mask));
    }
  }
  add_rows<kHeadSize>(keys.dvalue, weights, dread, column);
  add_rows<kHeadSize>(keys.dkey, dscores, query, column);
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
