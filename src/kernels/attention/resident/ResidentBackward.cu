#include <cmath>

#include "base/Launch.cuh"
#include "kernels/attention/GroupTile.cuh"
#include "kernels/attention/resident/ResidentAttention.h"
#include "kernels/attention/resident/ResidentVariants.cuh"
#include "kernels/attention/resident/backward/Fragments.cuh"
#include "kernels/attention/resident/backward/Round.cuh"
#include "kernels/attention/resident/backward/WarpTilePairs.cuh"
#include "kernels/primitives/Instructions.cuh"
#include "kernels/primitives/Tile.cuh"
#include "kernels/rope/RopeAngles.cuh"

/// The backward pass of resident-KV attention. For a head, with dropout's scale c and m = 1 for kept weights,
/// 0 for others:
///
///     P = exp2(q kᵀ − lse)
///     dS = P (m · d_attention_output vᵀ − delta),  delta = Σ d_attention_output · attention_output / c
///     dq = c / √head size · dS k,  dk = c ln 2 · dSᵀ q,  dv = c (m P)ᵀ d_attention_output
///
/// q includes the factor log2 e / √head size, so that scores are exponents of 2.
///
/// A thread block takes 32 columns of heads of one sequence. With two streams it takes the queries first, in
/// a round of their own. The context's keys and values then have a part of their gradients, which stays in
/// the gradients' place in memory until the round of the context. In a round a warp takes warp tiles of 16
/// tokens of one head: as keys with all queries that read them, and as queries with all keys that they read.
/// The weights are computed in both cases, so that warps exchange nothing. In causal attention a warp tile's
/// keys have as many queries fewer as its queries have keys more, so that the work is balanced. WarpTilePairs
/// computes a pair of warp tiles.
///
/// Warp tiles of padding are skipped; their gradients are 0.
///
/// Shared memory, 64 KiB plus 2 KiB per head:
///
///     keys, values   (256, 32), 16 KiB each: for the whole launch; keys rotated, where there is rope
///     queries, d_attention_output (256, 32), 16 KiB each: for a round; queries with their factor, rotated
///     minus_log, minus_delta  (heads, 256), fp32: for a round
namespace adtrain::kernels {
namespace {

using backward_pass::multiply_by;
using backward_pass::Round;

constexpr int kWarps = 8;

struct Job {
  MultiheadAttention attention;
  MultiheadAttentionGradients gradients;
};

/// The work of one thread in a launch.
template <int HeadSize, bool Dropout, bool Streams, bool Padded>
class HeadsBackward {
  using Group = HeadGroup<HeadSize>;
  using Pairs = backward_pass::WarpTilePairs<kGroupColumns, HeadSize, Dropout, Streams, Padded>;
  using Keys = typename Pairs::Keys;
  using KeyWords = typename Pairs::KeyWords;
  using Queries = typename Pairs::Queries;
  static constexpr int kHeads = Group::kHeads, kEights = HeadSize / 8;
  static constexpr int kTile = GroupTile::bytes(kMostTokens), kScores = kHeads * kMostTokens;

 public:
  static constexpr int kBytes = 4 * kTile + 2 * kScores * static_cast<int>(sizeof(float));

  __device__ HeadsBackward(const Job& job, char* shared)
      : job_(job.attention),
        gradients_(job.gradients),
        group_(Group::of(job_.shape, blockIdx.x)),
        keys_{reinterpret_cast<Bf16*>(shared)},
        values_{reinterpret_cast<Bf16*>(shared + kTile)},
        queries_{reinterpret_cast<Bf16*>(shared + 2 * kTile)},
        d_attention_output_{reinterpret_cast<Bf16*>(shared + 3 * kTile)},
        minus_log_(reinterpret_cast<float*>(shared + 4 * kTile)),
        minus_delta_(minus_log_ + kScores),
        warp_(threadIdx.x / kWarp),
        place_(lane_place()),
        tokens_(job_.shape.tokens),
        warp_tiles_((tokens_ + kWarpTile - 1) / kWarpTile),
        pairs_(job_.shape, {queries_, d_attention_output_, keys_, values_, minus_log_, minus_delta_}) {}

  __device__ void run() {
    start_copy(keys_, warp_tiles_, job_.keys, group_, 0, 0, tokens_);
    start_copy(values_, warp_tiles_, job_.values, group_, 0, 0, tokens_);
    clear_others();
    if constexpr (Streams) {
      take(round_of(true), true);
      if (job_.shape.rows > job_.shape.queries) {
        __syncthreads();
        take(round_of(false), false);
      }
    } else {
      take(round_of(false), true);
    }
    if constexpr (Padded) clear_padding();
  }

 private:
  // A round

  __device__ Round round_of(bool queries) const {
    return Round::of<Streams, Padded>(job_.shape, group_.sequence, queries);
  }
  __device__ void take(const Round& round, bool first) {
    round_ = round;
    pairs_.begin(round_, keep_of_round());
    fetch();
    copies_arrived();
    if (first && job_.cosines != nullptr) turn_keys();
    settle_queries();
    __syncthreads();
    const int units = (warp_tiles_ - first_warp_tile()) * kHeads;
#pragma unroll 1
    for (int unit = warp_; unit < units; unit += kWarps) {
      const int warp_tile = first_warp_tile() + unit / kHeads, head = unit % kHeads;
      read_as_keys(warp_tile, head);
      if (warp_tile >= round_.first_output) read_as_queries(warp_tile, head);
    }
  }
  __device__ bool of_queries() const {
    return Streams && round_.of_queries;
  }
  /// Warp tiles before it are all padding and are skipped.
  __device__ int first_warp_tile() const {
    return Padded ? round_.first_token / kWarpTile : 0;
  }
  /// Whether the context's keys and values already have gradients from an earlier round (continues), or will
  /// get more in a later one (is_continued).
  __device__ bool continues() const {
    return Streams && !round_.of_queries;
  }
  __device__ bool is_continued() const {
    return of_queries() && job_.shape.rows > job_.shape.queries;
  }
  __device__ bool is_output(int token) const {
    return token >= round_.skipped && token < tokens_;
  }
  /// The token's row among the sequence's output rows.
  __device__ int row_of(int token) const {
    return round_.first_row + token - round_.skipped;
  }
  /// A query's row among all tokens + queries of the sequence.
  __device__ int own_row(int token) const {
    return job_.shape.queries + token;
  }

  __device__ void fetch() const {
    const int first = round_.first_row - round_.skipped;
    start_copy(queries_, warp_tiles_, job_.queries, group_, first, round_.skipped, tokens_);
    start_copy(d_attention_output_, warp_tiles_,
               rows_of_heads<HeadSize>(gradients_.attention_output, job_.shape), group_, first,
               round_.skipped, tokens_);
    // For queries that do not exist, −lse is −∞, so that their weights are 0.
#pragma unroll 1
    for (int i = threadIdx.x; i < kScores; i += kWarps * kWarp) {
      const int head = i / kMostTokens, token = i % kMostTokens;
      const int64_t before = int64_t{group_.number(job_.shape) + head} * job_.shape.rows;
      minus_log_[i] = is_output(token) ? -job_.lse[before + row_of(token)] : -INFINITY;
    }
  }

  /// Rotates the keys that this thread has copied.
  __device__ void turn_keys() const {
    Chunk::for_each(warp_tiles_, [&](Chunk chunk) {
      uint4* at = reinterpret_cast<uint4*>(keys_.at(chunk.row, chunk.column));
      ChunkValues values = ChunkValues::of(*at);
      rotate(values, chunk);
      *at = values.rounded();
    });
  }
  __device__ void rotate(ChunkValues& values, Chunk chunk) const {
    values.rotate<HeadSize>(job_.cosines, job_.sines, min(chunk.row, tokens_ - 1), chunk.column);
  }

  /// Prepares what this thread has copied of queries and d_attention_output. Queries are rotated and
  /// multiplied by the factor of scores. d_attention_output gives the deltas.
  __device__ void settle_queries() const {
    const auto all_read = rows_of_heads<HeadSize, const Bf16>(job_.attention_output, job_.shape);
    const float scale = kLog2E / std::sqrt(static_cast<float>(HeadSize)), inverse = 1.0f / job_.scale;
    Chunk::for_each(warp_tiles_, [&](Chunk chunk) {
      uint4 attention_output = {};
      if (is_output(chunk.row)) {
        const Bf16* from = group_.at(all_read, row_of(chunk.row), chunk.column);
        attention_output = __ldg(reinterpret_cast<const uint4*>(from));
      }
      uint4* at = reinterpret_cast<uint4*>(queries_.at(chunk.row, chunk.column));
      ChunkValues query = ChunkValues::of(*at);
      if (job_.cosines != nullptr) rotate(query, chunk);
      query.multiply_by(scale);
      *at = query.rounded();
      const uint4 d_attention_output =
          *reinterpret_cast<const uint4*>(d_attention_output_.at(chunk.row, chunk.column));
      const float delta = head_sum<HeadSize>(
          ChunkValues::of(attention_output).product_with(ChunkValues::of(d_attention_output)));
      if (chunk.column % HeadSize == 0) {
        minus_delta_[chunk.column / HeadSize * kMostTokens + chunk.row] = -delta * inverse;
      }
    });
  }

  /// Clears gradients that no round computes: the queries' of tokens without a query, and the keys' and
  /// values' of queries without an output row.
  __device__ void clear_others() const {
    clear(gradients_.queries, -gradients_.rows_before, 0);
    if constexpr (Streams) {
      const int unasked = max(job_.shape.queries - job_.shape.rows, 0);
      clear(gradients_.keys, tokens_, tokens_ + unasked);
      clear(gradients_.values, tokens_, tokens_ + unasked);
    }
  }
  /// Clears the gradients of warp tiles that are all padding.
  __device__ void clear_padding() const {
    const int tokens = kWarpTile * first_warp_tile();
    clear(gradients_.keys, 0, tokens);
    clear(gradients_.values, 0, tokens);
    if (!of_queries()) clear(gradients_.queries, 0, tokens - round_.skipped);
  }
  __device__ void clear(const HeadMatrix<Bf16>& matrix, int begin, int end) const {
#pragma unroll 1
    for (int i = threadIdx.x; i < (end - begin) * kGroupChunks; i += kWarps * kWarp) {
      Bf16* at = group_.at(matrix, begin + i / kGroupChunks, 8 * (i % kGroupChunks));
      *reinterpret_cast<uint4*>(at) = {};
    }
  }

  // Fragments in global memory: a lane's rows in a head's columns

  /// Stores a warp tile as the matrix's rows from `row` on, where `stored` is set.
  __device__ void store(const HeadMatrix<Bf16>& matrix, int row, int head, const Sums (&sums)[kEights],
                        const bool (&stored)[2]) const {
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      Bf16* to = matrix.at(group_.sequence, row + 8 * half, group_.first_head + head) + place_.column;
#pragma unroll
      for (int eight = 0; eight < kEights; ++eight) {
        const float* value = sums[eight].value + 2 * half;
        if (stored[half]) *reinterpret_cast<uint32_t*>(to + 8 * eight) = packed(value[0], value[1]);
      }
    }
  }
  template <class Value>
  __device__ void load(Sums (&sums)[kEights], const HeadMatrix<Value>& matrix, int row, int head,
                       const bool (&loaded)[2]) const {
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const Bf16* from = matrix.at(group_.sequence, row + 8 * half, group_.first_head + head) + place_.column;
#pragma unroll
      for (int eight = 0; eight < kEights; ++eight) {
        const uint32_t pair = loaded[half] ? *reinterpret_cast<const uint32_t*>(from + 8 * eight) : 0;
        const float2 both = unpacked(pair);
        sums[eight].value[2 * half] = both.x;
        sums[eight].value[2 * half + 1] = both.y;
      }
    }
  }
  /// Direction −1 rotates back.
  __device__ void rotate_warp_tile(Sums (&sums)[kEights], int warp_tile, float direction) const {
    if (job_.cosines == nullptr) return;
    RopeAngles<HeadSize>::of(job_.cosines, job_.sines, kWarpTile * warp_tile, tokens_, direction).apply(sums);
  }

  // The pairs of warp tiles

  __device__ const uint32_t* keep_of_round() const {
    if constexpr (!Dropout) return nullptr;
    const int64_t words = int64_t{group_.number(job_.shape)} * ((tokens_ + 31) / 32);
    return job_.keep + words * job_.shape.rows + round_.first_row;
  }

  /// Computes dk and dv of a warp tile's keys from all queries that read them.
  __device__ void read_as_keys(int warp_tile, int head) const {
    const int token = kWarpTile * warp_tile + place_.row;
    const bool exist[2] = {token < tokens_, token + 8 < tokens_};
    Keys keys;
    pairs_.start(keys, warp_tile, head);
    if (continues()) {
      load(keys.dkey, gradients_.keys, token, head, exist);
      load(keys.dvalue, gradients_.values, token, head, exist);
    }
    pairs_.add_queries(keys, warp_tile);
    if (!is_continued()) {
      multiply_by(keys.dkey, job_.scale * kLn2);
      multiply_by(keys.dvalue, job_.scale);
      rotate_warp_tile(keys.dkey, warp_tile, -1.0f);
    }
    store(gradients_.keys, token, head, keys.dkey, exist);
    store(gradients_.values, token, head, keys.dvalue, exist);
  }

  /// Computes dq of a warp tile's queries from all keys that they read.
  __device__ void read_as_queries(int warp_tile, int head) const {
    const int token = kWarpTile * warp_tile + place_.row;
    Queries queries;
    pairs_.start(queries, warp_tile, head);
    const KeyWords words = pairs_.add_keys(queries, warp_tile);
    if (of_queries()) add_own_keys(queries, warp_tile, words);
    multiply_by(queries.dquery, job_.scale / std::sqrt(static_cast<float>(HeadSize)));
    rotate_warp_tile(queries.dquery, warp_tile, -1.0f);
    store(gradients_.queries, row_of(token), head, queries.dquery, {is_output(token), is_output(token + 8)});
  }

  /// For queries of a second stream: adds their own keys to dq, and computes the gradients of these keys and
  /// values. `words`: the dropout words of the context's keys in the same warp tile.
  __device__ void add_own_keys(Queries& queries, int warp_tile, const KeyWords& words) const {
    const int token = kWarpTile * warp_tile + place_.row;
    const bool exist[2] = {is_output(token), is_output(token + 8)};
    Sums keys[kEights], values[kEights];
    load(keys, job_.keys, own_row(token), queries.head, exist);
    load(values, job_.values, own_row(token), queries.head, exist);
    rotate_warp_tile(keys, warp_tile, 1.0f);
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      float score = 0.0f, dweight = 0.0f;
#pragma unroll
      for (int eight = 0; eight < kEights; ++eight) {
        float* const key = keys[eight].value + 2 * half;
        const float* const value = values[eight].value + 2 * half;
        const float2 rounded = unpacked(packed(key[0], key[1]));
        key[0] = rounded.x;
        key[1] = rounded.y;
        const float2 q = unpacked(queries.query.part[eight][half]);
        const float2 d_attention_output = unpacked(queries.d_attention_output.part[eight][half]);
        score = fmaf(q.x, key[0], fmaf(q.y, key[1], score));
        dweight = fmaf(d_attention_output.x, value[0], fmaf(d_attention_output.y, value[1], dweight));
      }
      const bool kept = !Dropout || (words.word[half] >> (token + 8 * half) % 32 & 1) != 0;
      const float minus_delta = queries.minus_delta.value[2 * half];
      const float weight = exp2_of(quad_sum(score) + queries.minus_log.value[2 * half]);
      const float dscore = weight * (quad_sum(kept ? dweight : 0.0f) + minus_delta);
      // From here on, `keys` and `values` hold their gradients.
#pragma unroll
      for (int eight = 0; eight < kEights; ++eight) {
        const float2 q = unpacked(queries.query.part[eight][half]);
        const float2 d_attention_output = unpacked(queries.d_attention_output.part[eight][half]);
        float *const key = keys[eight].value + 2 * half, *const value = values[eight].value + 2 * half;
        float* const dquery = queries.dquery[eight].value + 2 * half;
        dquery[0] = fmaf(dscore, key[0], dquery[0]);
        dquery[1] = fmaf(dscore, key[1], dquery[1]);
        const float of_key = job_.scale * kLn2 * dscore, of_value = kept ? job_.scale * weight : 0.0f;
        key[0] = of_key * q.x;
        key[1] = of_key * q.y;
        value[0] = of_value * d_attention_output.x;
        value[1] = of_value * d_attention_output.y;
      }
    }
    rotate_warp_tile(keys, warp_tile, -1.0f);
    store(gradients_.keys, own_row(token), queries.head, keys, exist);
    store(gradients_.values, own_row(token), queries.head, values, exist);
  }

  const MultiheadAttention& job_;
  const MultiheadAttentionGradients& gradients_;
  const Group group_;
  const GroupTile keys_, values_, queries_, d_attention_output_;
  float *const minus_log_, *const minus_delta_;
  const int warp_;
  const LanePlace place_;
  const int tokens_, warp_tiles_;
  Pairs pairs_;
  Round round_;
};

template <int HeadSize, bool Dropout, bool Streams, bool Padded>
__global__ void __launch_bounds__(kWarps* kWarp, HeadSize == 32 ? 2 : 3)
    resident_attention_backward_kernel(const __grid_constant__ Job job) {
  HeadsBackward<HeadSize, Dropout, Streams, Padded>(job, dynamic_shared_memory()).run();
}

struct Backward {
  template <int HeadSize, bool Dropout, bool Streams, bool Padded>
  static void launch(const Job& job, cudaStream_t stream) {
    const BlockShape& shape = job.attention.shape;
    gpu::launch("resident_attention_backward_kernel",
                resident_attention_backward_kernel<HeadSize, Dropout, Streams, Padded>,
                shape.sequences * (shape.width / kGroupColumns), kWarps * kWarp,
                HeadsBackward<HeadSize, Dropout, Streams, Padded>::kBytes, stream, job);
  }
};

}  // namespace

void resident_attention_backward(const MultiheadAttention& attention,
                                 const MultiheadAttentionGradients& gradients, cudaStream_t stream) {
  launch_variant<Backward>(attention, Job{attention, gradients}, stream);
}

}  // namespace adtrain::kernels
