#include <cmath>

#include "base/Launch.cuh"
#include "model/kernels/attention/GroupTile.cuh"
#include "model/kernels/attention/HeadAttention.h"
#include "model/kernels/attention/LongAttention.h"
#include "model/kernels/fused/Instructions.cuh"
#include "model/kernels/fused/Tile.cuh"
#include "model/kernels/fused/attention_backward/Fragments.cuh"
#include "model/kernels/fused/attention_backward/Plan.cuh"
#include "model/kernels/fused/attention_backward/Rotation.cuh"

/// The attention's backward pass by itself. A head, with dropout's scale c and m = 1 for what is kept:
///
///     P = exp2(q kᵀ − log_sum)
///     dS = P (m · dread vᵀ − delta),  delta = Σ dread · read / c
///     dq = c / √head size · dS k,  dk = c ln 2 · dSᵀ q,  dv = c (m P)ᵀ dread
///
/// q carries log2 e / √head size, so that scores are exponents of 2.
///
/// A thread block takes 32 columns of heads of one sequence. Of a second stream it takes the queries first,
/// in a round of their own: the context's keys have got a share of their gradients then, which waits in their
/// place in memory for the round of the context. In a round a warp takes strips of 16 tokens of one head, as
/// keys with all queries that read them, and as queries with all keys that they read. Weights are computed in
/// both, so that warps need nothing of each other. Where later tokens read more, a strip's keys have as many
/// queries fewer as its queries have keys more.
///
/// Shared memory, 64 KiB and 2 KiB a head:
///
///     keys, values   (256, 32), 16 KiB each: the whole launch; keys turned, where they turn
///     queries, dread (256, 32), 16 KiB each: a round; queries with their factor, turned
///     minus_log, minus_delta  (heads, 256), fp32: a round
namespace adtrain::kernels {
namespace {

using backward_pass::add_rows;
using backward_pass::head_rows;
using backward_pass::HeadRows;
using backward_pass::kMostTokens;
using backward_pass::multiply_with_rows;
using backward_pass::Rotation;
using backward_pass::Round;

constexpr float kLog2E = 1.44269504f, kLn2 = 0.693147181f;
constexpr int kWarps = 8;

struct Job {
  HeadAttention attention;
  HeadAttentionGradients gradients;
};

/// A thread's part in a launch.
template <int HeadSize, bool Dropout, bool Streams>
class HeadsBackward {
  using Group = HeadGroup<HeadSize>;
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
        dread_{reinterpret_cast<Bf16*>(shared + 3 * kTile)},
        minus_log_(reinterpret_cast<float*>(shared + 4 * kTile)),
        minus_delta_(minus_log_ + kScores),
        warp_(threadIdx.x / kWarp),
        place_(lane_place()),
        tokens_(job_.shape.tokens),
        strips_((tokens_ + kStrip - 1) / kStrip) {}

  __device__ void run() {
    start_copy(keys_, strips_, job_.keys, group_, 0, 0, tokens_);
    start_copy(values_, strips_, job_.values, group_, 0, 0, tokens_);
    clear_others();
    if constexpr (Streams) {
      take(Round::of<true, false>(job_.shape, group_.sequence, true), true);
      if (job_.shape.rows > job_.shape.queries) {
        __syncthreads();
        take(Round::of<true, false>(job_.shape, group_.sequence, false), false);
      }
    } else {
      take(Round::of<false, false>(job_.shape, group_.sequence, false), true);
    }
  }

 private:
  // A round

  __device__ void take(const Round& round, bool first) {
    round_ = round;
    fetch();
    copies_arrived();
    if (first && job_.cosines != nullptr) turn_keys();
    settle_queries();
    __syncthreads();
#pragma unroll 1
    for (int unit = warp_; unit < strips_ * kHeads; unit += kWarps) {
      read_as_keys(unit / kHeads, unit % kHeads);
      if (unit / kHeads >= round_.first_output) read_as_queries(unit / kHeads, unit % kHeads);
    }
  }
  __device__ bool of_queries() const {
    return Streams && round_.of_queries;
  }
  /// Whether the context's keys get something from another round: before this one, or behind it.
  __device__ bool continues() const {
    return Streams && !round_.of_queries;
  }
  __device__ bool is_continued() const {
    return of_queries() && job_.shape.rows > job_.shape.queries;
  }
  /// The row that comes out for a token, or the nearest one, in the round.
  __device__ int nearest_row(int token) const {
    return min(max(token - round_.skipped, 0), round_.rows - 1);
  }
  __device__ bool is_output(int token) const {
    return token >= round_.skipped && token < tokens_;
  }
  /// Among the sequence's rows that come out.
  __device__ int row_of(int token) const {
    return round_.first_row + token - round_.skipped;
  }
  /// A query's row among all tokens + queries.
  __device__ int own_row(int token) const {
    return job_.shape.queries + token;
  }

  /// What comes out lies by rows of heads.
  __device__ HeadMatrix<const Bf16> rows_of_heads(const Bf16* data) const {
    const BlockShape& shape = job_.shape;
    return {data, int64_t{shape.rows} * shape.width, shape.width, HeadSize};
  }

  __device__ void fetch() const {
    const int first = round_.first_row - round_.skipped;
    start_copy(queries_, strips_, job_.queries, group_, first, round_.skipped, tokens_);
    start_copy(dread_, strips_, rows_of_heads(gradients_.read), group_, first, round_.skipped, tokens_);
#pragma unroll 1
    for (int i = threadIdx.x; i < kScores;
         i += kWarps * kWarp) {  // queries that do not exist have no weights
      const int head = i / kMostTokens, token = i % kMostTokens;
      const int64_t before = int64_t{group_.number(job_.shape) + head} * job_.shape.rows;
      minus_log_[i] = is_output(token) ? -job_.log_sums[before + row_of(token)] : -INFINITY;
    }
  }

  /// What this thread has fetched of keys.
  __device__ void turn_keys() const {
    Chunk::for_each(strips_, [&](Chunk chunk) {
      uint4* at = reinterpret_cast<uint4*>(keys_.at(chunk.row, chunk.column));
      ChunkValues values = ChunkValues::of(*at);
      turn(values, chunk);
      *at = values.rounded();
    });
  }
  __device__ void turn(ChunkValues& values, Chunk chunk) const {
    values.turn<HeadSize>(job_.cosines, job_.sines, min(chunk.row, tokens_ - 1), chunk.column);
  }

  /// Of queries and dread likewise: queries become factors of scores, dread gives the deltas.
  __device__ void settle_queries() const {
    const HeadMatrix<const Bf16> all_read = rows_of_heads(job_.read);
    const float scale = kLog2E / std::sqrt(static_cast<float>(HeadSize)), inverse = 1.0f / job_.scale;
    Chunk::for_each(strips_, [&](Chunk chunk) {
      uint4 read = {};
      if (is_output(chunk.row)) {
        const Bf16* from = group_.at(all_read, row_of(chunk.row), chunk.column);
        read = __ldg(reinterpret_cast<const uint4*>(from));
      }
      uint4* at = reinterpret_cast<uint4*>(queries_.at(chunk.row, chunk.column));
      ChunkValues query = ChunkValues::of(*at);
      if (job_.cosines != nullptr) turn(query, chunk);
      query.multiply_by(scale);
      *at = query.rounded();
      const uint4 dread = *reinterpret_cast<const uint4*>(dread_.at(chunk.row, chunk.column));
      const float delta = head_sum<HeadSize>(ChunkValues::of(read).product_with(ChunkValues::of(dread)));
      if (chunk.column % HeadSize == 0) {
        minus_delta_[chunk.column / HeadSize * kMostTokens + chunk.row] = -delta * inverse;
      }
    });
  }

  /// Gradients of what nobody reads: queries' of tokens that have none, keys' and values' of queries that do
  /// not come out.
  __device__ void clear_others() const {
    clear(gradients_.queries, -gradients_.rows_before, 0);
    if constexpr (Streams) {
      const int unasked = max(job_.shape.queries - job_.shape.rows, 0);
      clear(gradients_.keys, tokens_, tokens_ + unasked);
      clear(gradients_.values, tokens_, tokens_ + unasked);
    }
  }
  __device__ void clear(const HeadMatrix<Bf16>& matrix, int begin, int end) const {
#pragma unroll 1
    for (int i = threadIdx.x; i < (end - begin) * kGroupChunks; i += kWarps * kWarp) {
      Bf16* at = group_.at(matrix, begin + i / kGroupChunks, 8 * (i % kGroupChunks));
      *reinterpret_cast<uint4*>(at) = {};
    }
  }

  // Fragments in memory: a lane's rows of a head's columns

  /// Rows of a strip from `row` of the matrix on, where the round's queries come out.
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
  __device__ static void multiply_by(Sums (&sums)[kEights], float scale) {
#pragma unroll
    for (Sums& eight : sums) {
#pragma unroll
      for (float& value : eight.value) value *= scale;
    }
  }
  /// direction −1: back.
  __device__ void turn_strip(Sums (&sums)[kEights], int strip, float direction) const {
    if (job_.cosines == nullptr) return;
    Rotation<HeadSize>::of(job_.cosines, job_.sines, kStrip * strip, tokens_, direction).apply(sums);
  }

  // Dropout's words of 32 keys: one for each row that comes out

  __device__ const uint32_t* words_of(int head, int word) const {
    if constexpr (!Dropout) return nullptr;
    const int64_t words = int64_t{group_.number(job_.shape) + head} * ((tokens_ + 31) / 32) + word;
    return job_.keep + words * job_.shape.rows + round_.first_row;
  }

  // As keys. Scores lie with keys as rows

  /// Words of the lane's queries in a strip: {columns 0-7, columns 8-15}, two neighbours each.
  struct QueryWords {
    uint32_t word[2][2];
  };
  /// `words`: of the lane's first query in a strip all of whose tokens come out.
  __device__ static QueryWords query_words(const uint32_t* words) {
    QueryWords result = {};
    if constexpr (Dropout) {
      result = {{{__ldg(words), __ldg(words + 1)}, {__ldg(words + 8), __ldg(words + 9)}}};
    }
    return result;
  }
  /// `words`: of the first row. Words of rows that do not come out do not matter.
  __device__ QueryWords query_words_of_edge(const uint32_t* words, int strip) const {
    const int token = kStrip * strip + place_.column;
    QueryWords result = {};
    if constexpr (Dropout) {
      result = {{{words[nearest_row(token)], words[nearest_row(token + 1)]},
                 {words[nearest_row(token + 8)], words[nearest_row(token + 9)]}}};
    }
    return result;
  }

  /// A head of a strip of keys, and what its queries add to the gradients.
  struct Keys {
    int head;
    int rotation;     ///< that brings the bit of the lane's first key to the highest place of a byte
    int earliest[2];  ///< the first query that reads the lane's keys
    HeadRows<HeadSize> key, value;
    Sums dkey[kEights], dvalue[kEights];
  };

  /// All queries that read the keys of a strip -> their dk and dv.
  __device__ void read_as_keys(int strip, int head) const {
    const int column = HeadSize * head, token = kStrip * strip + place_.row;
    Keys keys;
    keys.head = head;
    keys.rotation = 7 - token % 32;
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      keys.earliest[half] = job_.shape.causal ? token + 8 * half + of_queries() : 0;
    }
    keys.key = head_rows<HeadSize>(from_row(keys_, kStrip * strip), column);
    keys.value = head_rows<HeadSize>(from_row(values_, kStrip * strip), column);
    const bool exist[2] = {token < tokens_, token + 8 < tokens_};
    if (continues()) {
      load(keys.dkey, gradients_.keys, token, head, exist);
      load(keys.dvalue, gradients_.values, token, head, exist);
    } else {
#pragma unroll
      for (int i = 0; i < kEights; ++i) keys.dkey[i] = keys.dvalue[i] = no_sums();
    }

    // The edges: the first strip, and the last one where it is not whole.
    const int first = job_.shape.causal ? max(strip, round_.first_output) : round_.first_output,
              whole = tokens_ / kStrip;
    const uint32_t* const words = words_of(head, strip / 2);
#pragma unroll 1
    for (int edge = first; edge < strips_; edge = edge < whole ? whole : strips_) {
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

    if (!is_continued()) {
      multiply_by(keys.dkey, job_.scale * kLn2);
      multiply_by(keys.dvalue, job_.scale);
      turn_strip(keys.dkey, strip, -1.0f);
    }
    store(gradients_.keys, token, head, keys.dkey, exist);
    store(gradients_.values, token, head, keys.dvalue, exist);
  }

  /// Edge: some queries come before some of the keys.
  template <bool Edge>
  __device__ void add_queries(Keys& keys, int strip, const QueryWords& words) const {
    const int row = kStrip * strip, column = HeadSize * keys.head;
    const GroupTile query = from_row(queries_, row), dread = from_row(dread_, row);
    const float* const minus_log = minus_log_ + kMostTokens * keys.head + place_.column + row;
    const float* const minus_delta = minus_delta_ + kMostTokens * keys.head + place_.column + row;
    Sums scores[2] = {sums_from(minus_log), sums_from(minus_log + 8)};
    Sums dweights[2] = {sums_from(minus_delta), sums_from(minus_delta + 8)};
    const uint32_t minus_deltas[2] = {packed(dweights[0].value[0], dweights[0].value[1]),
                                      packed(dweights[1].value[0], dweights[1].value[1])};
    multiply_with_rows<HeadSize>(scores, keys.key, query, column);
    multiply_with_rows<HeadSize>(dweights, keys.value, dread, column);

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
        if constexpr (Dropout) mask = half == 0 ? pair_mask<0>(first, second) : pair_mask<1>(first, second);
        weights.part[2 * eight + half] = pair & mask;
        dscores.part[2 * eight + half] = multiplied(pair, (dpair & mask) | (minus_deltas[eight] & ~mask));
      }
    }
    add_rows<HeadSize>(keys.dvalue, weights, dread, column);
    add_rows<HeadSize>(keys.dkey, dscores, query, column);
  }

  // As queries. Scores lie with queries as rows

  /// Words of 32 keys of the lane's two queries.
  struct KeyWords {
    uint32_t word[2];
  };
  struct KeyPointers {
    const uint32_t* of_row[2];
  };
  __device__ static KeyWords key_words(const KeyPointers& words) {
    KeyWords result = {};
    if constexpr (Dropout) result = {{__ldg(words.of_row[0]), __ldg(words.of_row[1])}};
    return result;
  }

  /// A head of a strip of queries, and what its keys add to the gradient.
  struct Queries {
    int head;
    int behind[2];  ///< of the lane's two queries: the first key that is not read
    HeadRows<HeadSize> query, dread;
    Sums minus_log, minus_delta;
    Sums dquery[kEights];
  };

  /// All keys that the queries of a strip read -> their dq.
  __device__ void read_as_queries(int strip, int head) const {
    const int column = HeadSize * head, token = kStrip * strip + place_.row;
    Queries queries;
    queries.head = head;
    queries.behind[0] = job_.shape.causal ? token + !of_queries() : tokens_;
    queries.behind[1] = job_.shape.causal ? token + 8 + !of_queries() : tokens_;
    queries.query = head_rows<HeadSize>(from_row(queries_, kStrip * strip), column);
    queries.dread = head_rows<HeadSize>(from_row(dread_, kStrip * strip), column);
    const float *logs = minus_log_ + kMostTokens * head + token,
                *deltas = minus_delta_ + kMostTokens * head + token;
    queries.minus_log = {{logs[0], logs[0], logs[8], logs[8]}};
    queries.minus_delta = {{deltas[0], deltas[0], deltas[8], deltas[8]}};
#pragma unroll
    for (Sums& sums : queries.dquery) sums = no_sums();

    const uint32_t* const words = words_of(head, 0);
    KeyPointers words_now = {{words + nearest_row(token), words + nearest_row(token + 8)}};
    const int last = job_.shape.causal ? strip : strips_ - 1;
    KeyWords next = key_words(words_now);
    int keys = 0;
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
    } else {
      add_keys<true, 0>(queries, last, next);
    }
    if (of_queries()) add_own_keys(queries, strip, next);

    multiply_by(queries.dquery, job_.scale / std::sqrt(static_cast<float>(HeadSize)));
    turn_strip(queries.dquery, strip, -1.0f);
    store(gradients_.queries, row_of(token), head, queries.dquery, {is_output(token), is_output(token + 8)});
  }

  /// Edge: some of the keys are not read. Half: of the words.
  template <bool Edge, int Half>
  __device__ void add_keys(Queries& queries, int strip, const KeyWords& words) const {
    const int row = kStrip * strip, column = HeadSize * queries.head;
    const GroupTile key = from_row(keys_, row), value = from_row(values_, row);
    Sums scores[2] = {queries.minus_log, queries.minus_log};
    Sums dweights[2] = {queries.minus_delta, queries.minus_delta};
    multiply_with_rows<HeadSize>(scores, queries.query, key, column);
    multiply_with_rows<HeadSize>(dweights, queries.dread, value, column);

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
          if (Edge && row + 8 * eight + place_.column + i >= queries.behind[half]) weight[i] = 0.0f;
        }
        const uint32_t dpair = packed(dweights[eight].value[2 * half], dweights[eight].value[2 * half + 1]);
        uint32_t mask = ~0u;
        if constexpr (Dropout) {
          mask = eight == 0 ? pair_mask<2 * Half>(first, second) : pair_mask<2 * Half + 1>(first, second);
        }
        dscores.part[2 * eight + half] =
            multiplied(packed(weight[0], weight[1]), (dpair & mask) | (minus_delta & ~mask));
      }
    }
    add_rows<HeadSize>(queries.dquery, dscores, key, column);
  }

  /// What queries of a second stream read of themselves, and the gradients of these keys and values. `words`:
  /// of the context's keys in the same strip.
  __device__ void add_own_keys(Queries& queries, int strip, const KeyWords& words) const {
    const int token = kStrip * strip + place_.row;
    const bool exist[2] = {is_output(token), is_output(token + 8)};
    Sums keys[kEights], values[kEights];
    load(keys, job_.keys, own_row(token), queries.head, exist);
    load(values, job_.values, own_row(token), queries.head, exist);
    turn_strip(keys, strip, 1.0f);
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
        const float2 dread = unpacked(queries.dread.part[eight][half]);
        score = fmaf(q.x, key[0], fmaf(q.y, key[1], score));
        dweight = fmaf(dread.x, value[0], fmaf(dread.y, value[1], dweight));
      }
      const bool kept = !Dropout || (words.word[half] >> (token + 8 * half) % 32 & 1) != 0;
      const float minus_delta = queries.minus_delta.value[2 * half];
      const float weight = exp2_of(quad_sum(score) + queries.minus_log.value[2 * half]);
      const float dscore = weight * (quad_sum(kept ? dweight : 0.0f) + minus_delta);
      // From here on they hold their gradients.
#pragma unroll
      for (int eight = 0; eight < kEights; ++eight) {
        const float2 q = unpacked(queries.query.part[eight][half]);
        const float2 dread = unpacked(queries.dread.part[eight][half]);
        float *const key = keys[eight].value + 2 * half, *const value = values[eight].value + 2 * half;
        float* const dquery = queries.dquery[eight].value + 2 * half;
        dquery[0] = fmaf(dscore, key[0], dquery[0]);
        dquery[1] = fmaf(dscore, key[1], dquery[1]);
        const float of_key = job_.scale * kLn2 * dscore, of_value = kept ? job_.scale * weight : 0.0f;
        key[0] = of_key * q.x;
        key[1] = of_key * q.y;
        value[0] = of_value * dread.x;
        value[1] = of_value * dread.y;
      }
    }
    turn_strip(keys, strip, -1.0f);
    store(gradients_.keys, own_row(token), queries.head, keys, exist);
    store(gradients_.values, own_row(token), queries.head, values, exist);
  }

  const HeadAttention& job_;
  const HeadAttentionGradients& gradients_;
  const Group group_;
  const GroupTile keys_, values_, queries_, dread_;
  float *const minus_log_, *const minus_delta_;
  const int warp_;
  const LanePlace place_;
  const int tokens_, strips_;
  Round round_;
};

template <int HeadSize, bool Dropout, bool Streams>
__global__ void __launch_bounds__(kWarps* kWarp, HeadSize == 32 ? 2 : 3)
    head_attention_backward_kernel(const __grid_constant__ Job job) {
  HeadsBackward<HeadSize, Dropout, Streams>(job, dynamic_shared_memory()).run();
}

template <int HeadSize, bool Dropout, bool Streams>
void launch(const Job& job, cudaStream_t stream) {
  const BlockShape& shape = job.attention.shape;
  gpu::launch("head_attention_backward_kernel", head_attention_backward_kernel<HeadSize, Dropout, Streams>,
              shape.sequences * (shape.width / kGroupColumns), kWarps * kWarp,
              HeadsBackward<HeadSize, Dropout, Streams>::kBytes, stream, job);
}

template <int HeadSize>
void launch(const Job& job, cudaStream_t stream) {
  const bool dropout = job.attention.keep != nullptr;
  if (job.attention.shape.queries > 0) {
    return dropout ? launch<HeadSize, true, true>(job, stream) : launch<HeadSize, false, true>(job, stream);
  }
  return dropout ? launch<HeadSize, true, false>(job, stream) : launch<HeadSize, false, false>(job, stream);
}

}  // namespace

void head_attention_backward(const HeadAttention& attention, const HeadAttentionGradients& gradients,
                             cudaStream_t stream) {
  if (attention.is_long()) return long_attention_backward(attention, gradients, stream);
  const Job job = {attention, gradients};
  switch (attention.shape.width / attention.shape.heads) {
    case 8:
      return launch<8>(job, stream);
    case 16:
      return launch<16>(job, stream);
    default:
      return launch<32>(job, stream);
  }
}

}  // namespace adtrain::kernels
