#pragma once

#include <algorithm>
#include <cstdint>

#include <driver_types.h>

#include "kernels/primitives/MatrixRows.h"

/// Attention of one query a head over kept keys and values: what a row of tokens needs that grows by one
/// token. It is bound by memory, and with few heads by latency, and reads each key and value once. Several
/// thread blocks share the keys of a head where there are few heads (split-K, "flash decoding").
///
/// Keys and values lie in rings: token t is in place t % window, where it replaces the token that leaves the
/// window. All arrays are in the GPU's memory, aligned to 16 bytes, and borrowed. Calls return at once and
/// throw EnvironmentError where a kernel cannot be launched.
namespace adtrain::kernels {

struct DecodingShape {
  int sequences, heads;
  int head_size;  ///< 32, 64 or 128
  int window;     ///< places of a ring
  ShortType type;
  bool alibi;  ///< scores of head h = 0 … H−1 lose 2^(−8(h+1)/H) for each token that came after a key

  constexpr int64_t rings() const { return int64_t{sequences} * heads; }
};

constexpr bool is_decoding_head(int64_t head_size) {
  return head_size == 32 || head_size == 64 || head_size == 128;
}

/// How many thread blocks at most share the keys of a head.
inline int decoding_splits(const DecodingShape& shape, int processors) {
  constexpr int64_t kBlocksOfAProcessor = 16;  // two waves, so that the last blocks keep few others waiting
  constexpr int64_t kLeastKeys = 128;
  const int64_t wanted = (processors * kBlocksOfAProcessor + shape.rings() - 1) / shape.rings();
  return static_cast<int>(std::clamp<int64_t>(wanted, 1, (shape.window + kLeastKeys - 1) / kLeastKeys));
}

/// Whether there are so few heads that decoding_in_clusters() is faster.
inline bool has_few_rings(const DecodingShape& shape, int processors) {
  return shape.rings() <= int64_t{2} * processors;
}
/// How many thread blocks at most share the keys of a head there.
constexpr int kMostOfCluster = 8;
inline int decoding_cluster(const DecodingShape& shape, int processors) {
  constexpr int64_t kKeys = 128;  // that a thread block of heads of 64 loads at once
  constexpr int64_t kLong = 1024, kMostOfShort = 4;
  const int64_t of_short = std::clamp<int64_t>(processors / shape.rings(), 1, kMostOfShort);
  const int64_t wanted = of_short * std::max<int64_t>(shape.window / kLong, 1);
  const int64_t most = std::min<int64_t>(kMostOfCluster, (shape.window + kKeys - 1) / kKeys);
  return static_cast<int>(std::min(wanted, most));
}

/// How many of a head's newest keys are there brought into the L2 cache while the newest token is on its way.
/// Of more heads they would be in the way of weights, and with ALiBi many of them are not read.
inline int decoding_early_keys(const DecodingShape& shape, int processors) {
  constexpr int kMost = 1024;
  return 4 * shape.rings() <= processors ? kMost : 0;
}

/// LayerNorm or RMSNorm over the features of a head: vectors of 8 parameters; no weight for none, no bias of
/// RMSNorm.
struct HeadNormVectors {
  const Vector *weight, *bias;
};
struct DecodingNorms {
  HeadNormVectors query, key;  ///< both or neither
  float epsilon;
};

struct DecodingAttention {
  DecodingShape shape;
  /// Of the newest token: heads are contiguous, and `stride` elements lie from a sequence to the next, a
  /// multiple of 8.
  const void *query, *key, *value;
  int64_t stride;
  DecodingNorms norms;  ///< of the newest token's query and key, which are rounded then
  /// (sequences, heads, window, head size): the kernel writes the newest token's and reads the others.
  void *keys, *values;
  /// (sequences, heads): the largest |k|² of all keys there have been; 0 before the first. Read and written
  /// with ALiBi alone.
  float* key_norms;
  const int64_t* tokens;  ///< how many there have been, the newest among them
  int splits;             ///< decoding_splits() or decoding_cluster()
  int early_keys;  ///< decoding_early_keys(); this and the next are read by decoding_in_clusters() alone
  int processors;  ///< multiprocessors of the GPU
  /// (sequences, heads, splits, head size + 2): what the thread blocks of a head found; not read for 1 split
  /// and by decoding_in_clusters().
  float* parts;
  /// (sequences, heads): how many thread blocks of a head have stored their part; 0 before and after each
  /// call; not read either.
  unsigned* arrivals;
  void* output;  ///< (sequences, heads, head size)
};

/// Deterministic. With ALiBi, keys are not read whose weights together are below 2^-26 of the newest token's:
/// the lengths of query and keys bound the scores.
void decoding_attention(const DecodingAttention& attention, cudaStream_t stream);

/// The same for has_few_rings(), on GPUs of compute capability 9.0 and later: the thread blocks that share a
/// head are a cluster.
void decoding_in_clusters(const DecodingAttention& attention, cudaStream_t stream);

}  // namespace adtrain::kernels
