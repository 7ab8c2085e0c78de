#pragma once

#include "kernels/block/attention_backward/AttentionSublayer.cuh"

/// What a thread block copies and prefetches, and when.
namespace adtrain::kernels::backward_pass {

template <class V>
__device__ void AttentionSublayer<V>::fetch_weights() {
  const BlockWeights& weights = job_.weights;
  fetch_in_proj();
  if constexpr (!P::kInProjStays) fetch_weight(out_proj_, weights.out_proj_weight, kWidth);
  const int i = threadIdx.x;
  if (i < 3 * kWidth) in_proj_bias_[V::by_thirds(i)] = weights.in_proj_bias[i];
  if (kNormAfter && i < kWidth) norm1_weight_[i] = weights.norm1_weight[i];
}

template <class V>
__device__ void AttentionSublayer<V>::fetch_in_proj() {
  fetch_weight(in_proj_, job_.weights.in_proj_weight, 3 * kWidth, [](int row) { return V::by_thirds(row); });
}
template <class V>
__device__ void AttentionSublayer<V>::fetch_weight(Tile<kWidth> to, const Bf16* from, int rows) const {
  fetch_weight(to, from, rows, [](int row) { return row; });
}

/// Row r of `from` becomes row `place_of(r)`.
template <class V>
template <class PlaceOf>
__device__ void AttentionSublayer<V>::fetch_weight(Tile<kWidth> to, const Bf16* from, int rows,
                                                   PlaceOf place_of) const {
  constexpr int kChunks = kWidth / 8;
#pragma unroll 1
  for (int chunk = threadIdx.x; chunk < rows * kChunks; chunk += P::kThreads) {
    start_copy(to.at(place_of(chunk / kChunks), 8 * (chunk % kChunks)), from + 8 * chunk);
  }
}

/// Starts to copy a warp tile. The first row of `from` belongs to token `begin`; tokens before it and from
/// `tokens` on are 0.
template <class V>
__device__ void AttentionSublayer<V>::fetch_warp_tile(Tile<kWidth> to, int warp_tile, const Bf16* from,
                                                      int begin) {
  constexpr int kChunks = kWidth / 8;
#pragma unroll
  for (int i = 0; i < kWarpTile * kChunks / kWarp; ++i) {
    const int chunk = threadIdx.x % kWarp + i * kWarp, token = kWarpTile * warp_tile + chunk / kChunks;
    const int column = 8 * (chunk % kChunks);
    const bool exists = token >= begin && token < tokens_;
    start_copy_or_clear(to.at(token, column), from + (exists ? token - begin : 0) * kWidth + column, exists);
  }
}

/// Starts to copy x for in_proj, and the attention output.
template <class V>
__device__ void AttentionSublayer<V>::fetch_inputs() {
  if (!any_output()) return;
  if constexpr (kDropout && kStreams) prefetch_keep_of_round();
#pragma unroll 1
  for (int warp_tile = warp_; warp_tile < warp_tiles_; warp_tile += P::kWarps) {
    if (pads(warp_tile)) continue;
    fetch_warp_tile(x_, warp_tile, tokens_of(of_queries()), 0);
    if (has_output(warp_tile)) {
      fetch_warp_tile(attention_output_, warp_tile,
                      job_.activations.attention_output + rows_before() * kWidth, round_.skipped);
    }
  }
}

/// Starts to copy x for the sums, and in_proj where it has been overwritten.
template <class V>
__device__ void AttentionSublayer<V>::fetch_tokens() {
#pragma unroll 1
  for (int warp_tile = warp_; warp_tile < warp_tiles_; warp_tile += P::kWarps) {
    if (!pads(warp_tile)) fetch_warp_tile(x_, warp_tile, tokens_of(of_queries()), 0);
  }
  if constexpr (!P::kInProjStays) fetch_in_proj();
  close_copies();
}

/// Starts to copy what a round's step 1 reads first, and prefetches what its sequence needs later.
template <class V>
__device__ void AttentionSublayer<V>::fetch_gradients(const Round& round) {
  const BlockActivations& activations = job_.activations;
  const int64_t before = round.before(job_.shape);
#pragma unroll 1
  for (int warp_tile = warp_; warp_tile < warp_tiles_; warp_tile += P::kWarps) {
    if (warp_tile < round.first_output) continue;
    fetch_warp_tile(dx1_, warp_tile, job_.dx1 + before * kWidth, round.skipped);
    if constexpr (kNormAfter) {
      fetch_warp_tile(normed1_, warp_tile, activations.normed1 + before * kWidth, round.skipped);
      const int lane = threadIdx.x % kWarp, token = kWarpTile * warp_tile + lane;
      const bool exists = token >= round.skipped && token < tokens_;
      if (lane < kWarpTile) {
        start_copy_or_clear(inverse_ + token,
                            activations.inverse1 + before + (exists ? token - round.skipped : 0), exists);
      }
    }
  }
  if constexpr (P::kInProjStays) {
    fetch_weight(out_proj_, job_.weights.out_proj_weight, kWidth);
  }
  prefetch_round(round);
}

/// Prefetches what the round's first steps read. Where a sequence has two rounds, the data of all thread
/// blocks' rounds is more than the L2 cache holds, so dropout words are prefetched when the round has begun.
template <class V>
__device__ void AttentionSublayer<V>::prefetch_round(const Round& round) {
  const int length = job_.shape.length();
  const int64_t before = round.before(job_.shape);
  if (!kStreams || round.of_queries) {
    const int rows_of_heads = job_.shape.rows * kHeads;
    prefetch_rows(job_.activations.lse + int64_t{round.sequence} * rows_of_heads, rows_of_heads);
    prefetch_rows(job_.activations.x + int64_t{round.sequence} * length * kWidth, length * kWidth);
  }
  prefetch_rows(job_.activations.attention_output + before * kWidth, round.rows * kWidth);
  if (kNormAfter && job_.keep.projection != nullptr) {
    prefetch_rows(job_.keep.projection + before * (kWidth / 32), round.rows * (kWidth / 32));
  }
  if constexpr (kDropout && !kStreams) {
    const int words = kHeads * attention_words();
    prefetch_rows(job_.keep.attention + before * words, round.rows * words);
  }
}

/// Prefetches the dropout words of a round of several. Each warp takes the round's rows of a head's words of
/// 32 keys.
template <class V>
__device__ void AttentionSublayer<V>::prefetch_keep_of_round() {
#pragma unroll 1
  for (int word = warp_; word < kHeads * attention_words(); word += P::kWarps) {
    prefetch_rows<kWarp>(keep_of_round() + word * job_.shape.rows, round_.rows);
  }
}

/// The threads, or, for Threads = 32, the lanes of the warp share the lines.
template <class V>
template <int Threads, class Value>
__device__ void AttentionSublayer<V>::prefetch_rows(const Value* from, int count) {
  constexpr int kLine = 128 / sizeof(Value);
#pragma unroll 1
  for (int i = kLine * (threadIdx.x % Threads); i < count; i += kLine * Threads) prefetch(from + i);
}

/// Loads lse, which nothing waits for before store_logs(). For queries that do not exist it is ∞, so that
/// their weights are 0.
template <class V>
__device__ void AttentionSublayer<V>::load_logs(float (&logs)[kThreadLogs]) const {
#pragma unroll
  for (int i = 0; i < kThreadLogs; ++i) {
    const int element = threadIdx.x + i * P::kThreads, head = element / kMostTokens,
              token = element % kMostTokens;
    logs[i] = INFINITY;
    if (is_output(token)) {
      const int row = head * job_.shape.rows + round_.first_row + token - round_.skipped;
      logs[i] = job_.activations.lse[first_of_heads() + row];
    }
  }
}

template <class V>
__device__ void AttentionSublayer<V>::store_logs(const float (&logs)[kThreadLogs]) const {
#pragma unroll
  for (int i = 0; i < kThreadLogs; ++i) minus_log_[threadIdx.x + i * P::kThreads] = -logs[i];
}

template <class V>
__device__ void AttentionSublayer<V>::store_deltas(int warp_tile, const Sums& deltas) const {
#pragma unroll
  for (int i = 0; i < 2; ++i) {
    const int head = place_.column + i;
    if (head < kHeads) {
      float* of_warp_tile = minus_delta_ + head * kMostTokens + kWarpTile * warp_tile + place_.row;
      of_warp_tile[0] = -deltas.value[i];
      of_warp_tile[8] = -deltas.value[2 + i];
    }
  }
}

}  // namespace adtrain::kernels::backward_pass
