#pragma once

#include "model/kernels/fused/attention_backward/AttentionHalf.cuh"

/// Step 3, strips of tokens as queries.
namespace adtrain::kernels::backward_pass {

/// All keys that the warp's queries read -> their dq.
template <class V>
__device__ void AttentionHalf<V>::read_as_queries(uint32_t (&dquery)[P::kWarpStrips][kEights][2]) {
#pragma unroll
  for (int own = 0; own < P::kWarpStrips; ++own) {
    if (one_output_strip() && own > 0) break;
    const int strip = one_output_strip() ? round_.first_output : strip_of(own);
    if (strip >= strips_ || !has_output(strip)) continue;
#pragma unroll 1
    for (int head = one_output_strip() ? warp_ : 0; head < kHeads;
         head += one_output_strip() ? P::kWarps : 1) {
      Sums sums[kHeadEights];
      read_as_queries(strip, head, sums);
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
__device__ void AttentionHalf<V>::read_as_queries(int strip, int head, Sums (&dquery)[kHeadEights]) {
  const int column = kHeadSize * head, token = kStrip * strip + place_.row;
  Queries queries;
  queries.column = column;
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    const int behind = job_.shape.causal ? token + 8 * half + !of_queries() : tokens_;
    queries.keys[half] = max(behind - first_token(), 0);
  }
  queries.query = head_rows<kHeadSize>(from_row(query_, kStrip * strip), column);
  queries.dread = head_rows<kHeadSize>(from_row(dread_, kStrip * strip), column);
  const float *logs = minus_log_ + kMostTokens * head + token,
              *deltas = minus_delta_ + kMostTokens * head + token;
  queries.minus_log = {{logs[0], logs[0], logs[8], logs[8]}};
  queries.minus_delta = {{deltas[0], deltas[0], deltas[8], deltas[8]}};
#pragma unroll
  for (Sums& sums : queries.dquery) sums = no_sums();

  // The edges: the last strip, and behind padding those up to an even one.
  const int last = job_.shape.causal ? strip : strips_ - 1;
  int keys = (first_token() + 2 * kStrip - 1) / (2 * kStrip) * 2;
  const uint32_t* const words = words_of(head, min(keys, last) / 2);
  KeyPointers words_now = {{words + nearest_row(token), words + nearest_row(token + 8)}};
  KeyWords next = key_words(words_now);
  if (first_token() > 0) add_behind_padding(queries, head, strip, min(keys, last + 1));
#pragma unroll 1
  for (; keys + 2 <= last; keys += 2) {
    const KeyWords now = next;
    words_now.of_row[0] += job_.shape.rows;
    words_now.of_row[1] += job_.shape.rows;
    next = key_words(words_now);
    add_keys<false, 0>(queries, keys, now);
    add_keys<false, 1>(queries, keys + 1, now);
  }
  if (keys < last) {
    add_keys<false, 0>(queries, keys, next);
    add_keys<true, 1>(queries, last, next);
  } else if (keys == last) {
    add_keys<true, 0>(queries, last, next);
  }
  if (of_queries()) add_own_keys(queries, strip, next);

  multiply_by(queries.dquery, 1.0f / std::sqrt(static_cast<float>(kHeadSize)));
  turn_back_of(strip).apply(queries.dquery);
#pragma unroll
  for (int i = 0; i < kHeadEights; ++i) dquery[i] = queries.dquery[i];
}

/// The pair of strips in the first of which padding ends, up to `end`.
template <class V>
__device__ void AttentionHalf<V>::add_behind_padding(Queries& queries, int head, int strip, int end) {
  const int token = kStrip * strip + place_.row;
  const uint32_t* const words = words_of(head, first_strip() / 2);
  const KeyWords of_pair = key_words({{words + nearest_row(token), words + nearest_row(token + 8)}});
#pragma unroll 1
  for (int keys = first_strip(); keys < end; ++keys) {
    const int shift = keys % 2 * kStrip;
    add_keys<true, 0>(queries, keys, {{of_pair.word[0] >> shift, of_pair.word[1] >> shift}});
  }
}

/// Scores lie with queries as rows. Edge: some of the keys are not read. Half: of the words.
template <class V>
template <bool Edge, int Half>
__device__ void AttentionHalf<V>::add_keys(Queries& queries, int strip, const KeyWords& words) {
  const int row = kStrip * strip;
  const Tile<kWidth> key = from_row(key_, row), value = from_row(value_, row);
  Sums scores[2] = {queries.minus_log, queries.minus_log};
  Sums dweights[2] = {queries.minus_delta, queries.minus_delta};
  multiply_with_rows<kHeadSize>(scores, queries.query, key, queries.column);
  multiply_with_rows<kHeadSize>(dweights, queries.dread, value, queries.column);

  LeftFragment dscores;
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    const uint32_t first = words.word[half] << (7 - place_.column),
                   second = words.word[half] << (6 - place_.column);
    const uint32_t minus_delta =
        packed(queries.minus_delta.value[2 * half], queries.minus_delta.value[2 * half]);
#pragma unroll
    for (int eight = 0; eight < 2; ++eight) {
      float weight[2];
#pragma unroll
      for (int i = 0; i < 2; ++i) {
        weight[i] = exp2_of(scores[eight].value[2 * half + i]);
        const int behind_padding = row + 8 * eight + place_.column + i - first_token();
        if (Edge && static_cast<unsigned>(behind_padding) >= static_cast<unsigned>(queries.keys[half])) {
          weight[i] = 0.0f;
        }
      }
      const uint32_t dpair = packed(dweights[eight].value[2 * half], dweights[eight].value[2 * half + 1]);
      uint32_t mask = ~0u;
      if constexpr (kDropout)
        mask = eight == 0 ? pair_mask<2 * Half>(first, second) : pair_mask<2 * Half + 1>(first, second);
      dscores.part[2 * eight + half] =
          multiplied(packed(weight[0], weight[1]), (dpair & mask) | (minus_delta & ~mask));
    }
  }
  add_rows<kHeadSize>(queries.dquery, dscores, key, queries.column);
}

/// What queries read of themselves; then the gradients of these keys and values stand in their place.
/// `words`: of the context's keys in the same strip.
template <class V>
__device__ void AttentionHalf<V>::add_own_keys(Queries& queries, int strip, const KeyWords& words) const {
  const Tile<kWidth> own_key = from_row(own_key_, kStrip * strip),
                     own_value = from_row(own_value_, kStrip * strip);
  const HeadRows<kHeadSize> key = head_rows<kHeadSize>(own_key, queries.column),
                            value = head_rows<kHeadSize>(own_value, queries.column);
  Sums dkey[kHeadEights];  // where it must turn back first
  __syncwarp();
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    const int row = place_.row + 8 * half;
    const bool kept = !kDropout || (words.word[half] >> (kStrip * strip + row) % 32 & 1) != 0;
    const float minus_delta = queries.minus_delta.value[2 * half];
    const float weight =
        exp2_of(product_of_rows(queries.query, key, half) + queries.minus_log.value[2 * half]);
    const float dweight = product_of_rows(queries.dread, value, half);
    const float dscore = weight * (kept ? dweight + minus_delta : minus_delta);
#pragma unroll
    for (int eight = 0; eight < kHeadEights; ++eight) {
      const float2 q = unpacked(queries.query.part[eight][half]), k = unpacked(key.part[eight][half]);
      const float2 dread = unpacked(queries.dread.part[eight][half]);
      float* const dquery = queries.dquery[eight].value + 2 * half;
      dquery[0] = fmaf(dscore, k.x, dquery[0]);
      dquery[1] = fmaf(dscore, k.y, dquery[1]);
      const int column = queries.column + 8 * eight + place_.column;
      if constexpr (kRotated) {
        dkey[eight].value[2 * half] = kLn2 * dscore * q.x;
        dkey[eight].value[2 * half + 1] = kLn2 * dscore * q.y;
      } else {
        own_key.set_pair(row, column, packed(kLn2 * dscore * q.x, kLn2 * dscore * q.y));
      }
      own_value.set_pair(row, column, kept ? packed(weight * dread.x, weight * dread.y) : 0);
    }
  }
  if constexpr (kRotated) {
    turn_back_of(strip).apply(dkey);
    store_head(own_key_, strip, queries.column, dkey);
  }
}

/// Of the lane's first rows or, half = 1, its second.
template <class V>
__device__ float AttentionHalf<V>::product_of_rows(const HeadRows<kHeadSize>& left,
                                                   const HeadRows<kHeadSize>& right, int half) {
  float sum = 0.0f;
#pragma unroll
  for (int eight = 0; eight < kHeadEights; ++eight) {
    const float2 a = unpacked(left.part[eight][half]), b = unpacked(right.part[eight][half]);
    sum = fmaf(a.x, b.x, fmaf(a.y, b.y, sum));
  }
  return quad_sum(sum);
}

/// Where q was.
template <class V>
__device__ void AttentionHalf<V>::store_dquery(const uint32_t (&dquery)[P::kWarpStrips][kEights][2]) const {
#pragma unroll
  for (int own = 0; own < P::kWarpStrips; ++own) {
    if (one_output_strip() && own > 0) break;
    const int strip = one_output_strip() ? round_.first_output : strip_of(own);
    if (strip >= strips_ || !has_output(strip)) continue;
#pragma unroll
    for (int eight = 0; eight < kEights; ++eight) {
      if (one_output_strip() && warp_ != eight / kHeadEights) continue;
      const int token = kStrip * strip + place_.row, column = 8 * eight + place_.column;
      dquery_.set_pair(token, column, dquery[own][eight][0]);
      dquery_.set_pair(token + 8, column, dquery[own][eight][1]);
    }
  }
}

}  // namespace adtrain::kernels::backward_pass
