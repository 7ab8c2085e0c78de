#include <algorithm>
#include <cmath>

#include "base/Launch.cuh"
#include "model/kernels/fused/AttentionBackward.h"
#include "model/kernels/fused/Instructions.cuh"
#include "model/kernels/fused/Tile.cuh"

/// The backward pass of x1 = norm1(x + drop(out_proj(attention(in_proj(x))))), of a sequence:
///
///     du = inverse1 (g − mean(g) − normed1 · mean(g · normed1)),  g = dx1 · norm1_weight
///     dp = drop'(du),  dread = dp · out_proj_weight
///     a head:  P = exp2(q kᵀ − log_sum),  dP = drop'(dread vᵀ)
///              dS = P (dP − delta),  delta = Σ dread · read
///              dq = dS k,  dk = dSᵀ q,  dv = drop(P)ᵀ dread
///     dx = du + [dq dk dv] · in_proj_weight
///
/// and, over all sequences, dout_proj_weight = dpᵀ read, din_proj_weight = [dq dk dv]ᵀ x and the sums for the
/// vectors.
///
/// q, k and v are computed anew. q carries log2 e / √head size, so that scores are exponents of 2; dread in
/// shared memory carries dropout's scale of the weights.
///
/// A thread block stays for the whole launch and takes one sequence at a time. A warp has strips of 16
/// tokens. There is a barrier behind each of these steps:
///
///     1. of its tokens a warp makes du, dp, dread, delta, q, k and v;
///     2. sums for out_proj_weight;
///     3. as keys, with all queries that read them: dk, dv; as queries, with all keys that they read: dq.
///        Weights are computed in both, so that warps need nothing of each other. Where later tokens read
///        more, a strip's keys have as many queries fewer as its queries have keys more: all warps have the
///        same to do;
///     4. dx;
///     5. sums for in_proj_weight.
///
/// A sequence with a second stream is two rounds through these steps. The first one is for its queries: they
/// read the context's keys, and each one its own, which step 1 makes from the query. Own keys and values have
/// their gradients then; what the context's have got waits in global memory for the second round, that of the
/// context.
///
/// The sums for the weights stay in registers until the last sequence.
///
/// Shared memory, D = width, H = heads, for 256 tokens; 226 of 227 KiB for D = 64, else at most half as much,
/// so that two thread blocks share a multiprocessor. A tile is (256, D), 512 D bytes; numbers are steps,
/// "before" those of the round before:
///
///     tile 0      query: 1-3, dquery: 4-5
///     tile 1      x: 1, key: 1-3, x again: 4-5
///     tile 2      dx1: 4 before-1, for queries the context's x: 1, value: 1-3
///     tile 3      normed1: 4 before-1, dread: 1-3
///     tile 4      dprojected: 1-2, queries' own keys: 3, dkey: 3-5
///     tile 5      read: 1-2, queries' own values: 3, dvalue: 3-5
///     in_proj     (3 D, D), 6 D² bytes: the whole launch
///     out_proj    (D, D), 2 D² bytes: 4 before-1; in the same place:
///     minus_log, minus_delta  (H, 256) fp32 each, 2 K H bytes: 2-3. Eight heads of D = 64 have no room for
///                 them there: they take in_proj's place, which is filled again for 4
///     inverse     (256) fp32, 1 K: 4 before-1
///     vectors     (4 D), 8 D bytes: in_proj_bias, norm1_weight: the whole launch
namespace adtrain::kernels {
namespace {

constexpr int kMostTokens = 256;
constexpr int kMostStrips = kMostTokens / kStrip;
constexpr int kSharedBytes = 227 * 1024;     ///< of a thread block
constexpr int kProcessorBytes = 228 * 1024;  ///< of a multiprocessor
constexpr int kReservedBytes = 1024;         ///< a thread block's, beside its own
constexpr float kLog2E = 1.44269504f, kLn2 = 0.693147181f;
constexpr uint32_t kOnes = 0x3f803f80u;  ///< two 1 in 16 bit

/// What a launch works on.
struct Job {
  BlockShape shape;
  BlockWeights weights;
  KeepBits keep;
  BlockActivations activations;
  const Bf16* dx1;
  Bf16* dx;
  float* parts;
  Bf16* carried;
};

/// A stream of a sequence, which a thread block works on at a time. With two of them the queries come first.
struct Round {
  int sequence;
  bool of_queries;
  int rows;          ///< of the stream that come out, its last ones
  int first_row;     ///< of these, among the sequence's
  int skipped;       ///< tokens that do not come out
  int first_output;  ///< the first strip with tokens that do

  template <bool Streams>
  __device__ static Round of(const BlockShape& shape, int sequence, bool of_queries) {
    const int of_second = Streams ? min(shape.rows, shape.queries) : 0;
    const int rows = of_queries ? of_second : shape.rows - of_second, skipped = shape.tokens - rows;
    const int first_output = (Streams && rows == 0 ? skipped + kStrip - 1 : skipped) / kStrip;
    return {sequence, of_queries, rows, of_queries ? shape.rows - of_second : 0, skipped, first_output};
  }
  /// Its first row among all sequences'.
  __device__ int64_t before(const BlockShape& shape) const {
    return int64_t{sequence} * shape.rows + first_row;
  }
};

/// What a thread block carries from a sequence's queries to its context: gradients of keys and of values.
__host__ __device__ constexpr int carried_elements(int width) {
  return 2 * kMostTokens * width;
}

/// How a thread block is built; offsets in its shared memory in bytes.
template <int Width, int HeadSize>
struct Plan {
  static constexpr int kHeads = Width / HeadSize;
  static constexpr int kWarps = Width / 4;
  static constexpr int kThreads = kWarps * kWarp;
  static constexpr int kBlocks = 64 / Width;  ///< a multiprocessor's
  static constexpr int kWarpStrips = kMostStrips / kWarps;
  static constexpr int kCarried = carried_elements(Width);

  static constexpr int kTile = Tile<Width>::bytes(kMostTokens);
  static constexpr int kOutProjBytes = Tile<Width>::bytes(Width), kInProjBytes = 3 * kOutProjBytes;
  static constexpr int kScoreVectors = kHeads * kMostTokens;  ///< elements of minus_log, and of minus_delta
  static constexpr int kScoreBytes = 2 * kScoreVectors * static_cast<int>(sizeof(float));

  static constexpr int kInProj = 6 * kTile;
  static constexpr int kOutProj = kInProj + kInProjBytes;
  static constexpr bool kInProjStays = kScoreBytes <= 8 * 1024;
  static constexpr int kScores = kInProjStays ? kOutProj : kInProj;
  static constexpr int kInverse =
      kOutProj + (kInProjStays ? std::max(kOutProjBytes, kScoreBytes) : kOutProjBytes);
  static constexpr int kVectors = kInverse + kMostTokens * static_cast<int>(sizeof(float));
  static constexpr int kBytes = kVectors + 4 * Width * static_cast<int>(sizeof(Bf16));

  static_assert(kInProjStays || kScoreBytes <= kInProjBytes, "the place of in_proj is large enough");
  static_assert(kBytes <= kSharedBytes, "a thread block's shared memory");
  static_assert(kBlocks * (kBytes + kReservedBytes) <= kProcessorBytes, "a multiprocessor's shared memory");
};

/// What the rounding of products has left out, which 16 bit hold.
__device__ inline uint32_t rest_of(uint32_t product, uint32_t left, uint32_t right) {
  return multiplied_plus(left, right, negative(product));
}
__device__ inline LeftFragment rest_of(const LeftFragment& product, const LeftFragment& left,
                                       const LeftFragment& right) {
  LeftFragment rest;
#pragma unroll
  for (int i = 0; i < 4; ++i) rest.part[i] = rest_of(product.part[i], left.part[i], right.part[i]);
  return rest;
}

/// The tile from a row on that is a multiple of 16: places of lanes in it are the same for all such rows.
template <int Width>
__device__ Tile<Width> rows_from(Tile<Width> tile, int row) {
  return {tile.data + row * Width};
}

/// A strip of a tile × the columns of a head, as left operand: {rows, rows + 8} of each 8 columns.
template <int HeadSize>
struct HeadRows {
  uint32_t part[HeadSize / 8][2];

  __device__ LeftFragment step(int i) const {
    return {{part[2 * i][0], part[2 * i][1], part[2 * i + 1][0], part[2 * i + 1][1]}};
  }
};

template <int HeadSize, int Width>
__device__ HeadRows<HeadSize> head_rows(Tile<Width> strip, int column) {
  HeadRows<HeadSize> rows;
  if constexpr (HeadSize == 8) {
    load_two_matrices(rows.part[0], shared_address(strip.at(threadIdx.x % 16, column)));
  } else {
#pragma unroll
    for (int i = 0; i < HeadSize / 16; ++i) {
      const LeftFragment left = left_of(strip, 0, column + 16 * i);
#pragma unroll
      for (int eight = 0; eight < 2; ++eight) {
        rows.part[2 * i + eight][0] = left.part[2 * eight];
        rows.part[2 * i + eight][1] = left.part[2 * eight + 1];
      }
    }
  }
  return rows;
}

/// sums (16 × 16) += left · stripᵀ, over the columns of a head.
template <int HeadSize, int Width>
__device__ void multiply_with_rows(Sums (&sums)[2], const HeadRows<HeadSize>& left, Tile<Width> strip,
                                   int column) {
  if constexpr (HeadSize == 8) {
    uint32_t right[2];
    load_two_matrices(right, shared_address(strip.at(threadIdx.x % 16, column)));
    multiply_add_8(sums[0], left.part[0], right[0]);
    multiply_add_8(sums[1], left.part[0], right[1]);
  } else {
#pragma unroll
    for (int i = 0; i < HeadSize / 16; ++i) {
      multiply_add(sums[0], sums[1], left.step(i), right_of_transposed(strip, 0, column + 16 * i));
    }
  }
}

/// sums (16 × HeadSize) += left · strip.
template <int HeadSize, int Width>
__device__ void add_rows(Sums (&sums)[HeadSize / 8], const LeftFragment& left, Tile<Width> strip,
                         int column) {
  if constexpr (HeadSize == 8) {
    uint32_t right[2];
    load_two_matrices_transposed(right, shared_address(strip.at(threadIdx.x % 16, column)));
    multiply_add(sums[0], left, right[0], right[1]);
  } else {
#pragma unroll
    for (int i = 0; i < HeadSize / 16; ++i) {
      multiply_add(sums[2 * i], sums[2 * i + 1], left, right_of(strip, 0, column + 16 * i));
    }
  }
}

/// A thread's part in a launch.
template <int Width, int HeadSize, bool Dropout, bool Streams>
class AttentionHalf {
  using P = Plan<Width, HeadSize>;
  static constexpr int kHeads = P::kHeads;
  static constexpr int kEights = Width / 8;
  static constexpr int kSixteens = Width / 16;
  static constexpr int kHeadEights = HeadSize / 8;

 public:
  __device__ AttentionHalf(const Job& job, char* shared)
      : job_(job),
        shared_(shared),
        query_{tile(0)},
        dquery_{tile(0)},
        key_{tile(1)},
        x_{tile(1)},
        value_{tile(2)},
        dx1_{tile(2)},
        context_{tile(2)},
        dread_{tile(3)},
        normed1_{tile(3)},
        dprojected_{tile(4)},
        dkey_{tile(4)},
        own_key_{tile(4)},
        read_{tile(5)},
        dvalue_{tile(5)},
        own_value_{tile(5)},
        in_proj_{reinterpret_cast<Bf16*>(shared + P::kInProj)},
        out_proj_{reinterpret_cast<Bf16*>(shared + P::kOutProj)},
        minus_log_(reinterpret_cast<float*>(shared + P::kScores)),
        minus_delta_(minus_log_ + P::kScoreVectors),
        inverse_(reinterpret_cast<float*>(shared + P::kInverse)),
        in_proj_bias_(reinterpret_cast<Bf16*>(shared + P::kVectors)),
        norm1_weight_(in_proj_bias_ + 3 * Width),
        warp_(threadIdx.x / kWarp),
        place_(lane_place()),
        tokens_(job.shape.tokens),
        strips_((tokens_ + kStrip - 1) / kStrip) {}

  __device__ void run() {
    clear_sums();
    fetch_weights();
    round_ = Round::of<Streams>(job_.shape, blockIdx.x, Streams);
    fetch_gradients(round_);
    copies_arrived();
    __syncthreads();
#pragma unroll 1
    while (round_.sequence < job_.shape.sequences) {
      if constexpr (Dropout) {
        attention_keep_ = job_.keep.attention + first_of_heads() * attention_words() + round_.first_row;
      }
      fetch_inputs();
      float minus_logs[kThreadLogs];
      load_logs(minus_logs);
      Sums deltas[P::kWarpStrips];
      OwnKeys own_keys[P::kWarpStrips];
#pragma unroll
      for (int own = 0; own < P::kWarpStrips; ++own) {
        deltas[own] = no_sums();
        if (any_output() && strip_of(own) < strips_) prepare(strip_of(own), deltas[own], own_keys[own]);
      }
      __syncthreads();

      store_logs(minus_logs);
#pragma unroll
      for (int own = 0; own < P::kWarpStrips; ++own) {
        if (strip_of(own) < strips_ && has_output(strip_of(own))) store_deltas(strip_of(own), deltas[own]);
      }
      add_out_proj_sums();
      __syncthreads();

      if constexpr (Streams) store_own_keys(own_keys);
      uint32_t dquery[P::kWarpStrips][kEights][2] = {};
#pragma unroll 1
      for (int strip = warp_; strip < strips_; strip += P::kWarps) {
#pragma unroll 1
        for (int head = 0; head < kHeads; ++head) read_as_keys(strip, head);
      }
      read_as_queries(dquery);
      __syncthreads();

      fetch_tokens();
      const Round next = next_round();
      if (next.sequence < job_.shape.sequences) fetch_gradients(next);
      close_copies();
      store_dquery(dquery);
      if constexpr (!P::kInProjStays) copies_arrived();
      if (!P::kInProjStays || one_output_strip()) __syncthreads();
      __syncwarp();
#pragma unroll 1
      for (int strip = warp_; strip < strips_; strip += P::kWarps) make_dx(strip);
      copies_arrived_but_last();
      __syncthreads();

      add_in_proj_sums();
      copies_arrived();
      __syncthreads();
      round_ = next_round();
    }
    write_sums();
  }

 private:
  // Places

  __device__ Bf16* tile(int number) const {
    return reinterpret_cast<Bf16*>(shared_ + number * P::kTile);
  }
  __device__ int strip_of(int own) const {
    return warp_ + own * P::kWarps;
  }
  __device__ bool of_queries() const {
    return Streams && round_.of_queries;
  }
  __device__ bool has_output(int strip) const {
    return strip >= round_.first_output;
  }
  /// Else the round is there for keys and values alone.
  __device__ bool any_output() const {
    return !Streams || round_.first_output < strips_;
  }
  /// The first strip whose keys and values have gradients in this round: the context's, or the queries' own.
  __device__ int first_keys() const {
    return of_queries() ? round_.first_output : 0;
  }
  /// Then its heads are shared out among the warps, as queries, for nobody else has queries. Not those that
  /// have keys of their own.
  __device__ bool one_output_strip() const {
    return round_.first_output == strips_ - 1 && !of_queries();
  }
  __device__ Round next_round() const {
    if (of_queries()) return Round::of<Streams>(job_.shape, round_.sequence, false);
    return Round::of<Streams>(job_.shape, round_.sequence + static_cast<int>(gridDim.x), Streams);
  }
  __device__ int64_t rows_before() const {
    return round_.before(job_.shape);
  }
  /// Of what lies in rows for each head: where the sequence begins.
  __device__ int64_t first_of_heads() const {
    return int64_t{round_.sequence} * job_.shape.rows * kHeads;
  }
  /// In x, of the context or the queries.
  __device__ int64_t first_token(bool of_queries) const {
    return int64_t{round_.sequence} * job_.shape.length() + (of_queries ? tokens_ : 0);
  }
  __device__ const Bf16* tokens_of(bool of_queries) const {
    return job_.activations.x + first_token(of_queries) * Width;
  }

  // Copies to shared memory

  __device__ void fetch_weights() {
    const BlockWeights& weights = job_.weights;
    fetch_weight(in_proj_, weights.in_proj_weight, 3 * Width);
    if constexpr (!P::kInProjStays) fetch_weight(out_proj_, weights.out_proj_weight, Width);
    const int i = threadIdx.x;
    if (i < 3 * Width) in_proj_bias_[i] = weights.in_proj_bias[i];
    if (i < Width) norm1_weight_[i] = weights.norm1_weight[i];
  }

  __device__ void fetch_weight(Tile<Width> to, const Bf16* from, int rows) const {
    constexpr int kChunks = Width / 8;
#pragma unroll 1
    for (int chunk = threadIdx.x; chunk < rows * kChunks; chunk += P::kThreads) {
      start_copy(to.at(chunk / kChunks, 8 * (chunk % kChunks)), from + 8 * chunk);
    }
  }

  /// A strip of `from`, which begins with token `begin`; tokens before it and from `tokens` on are 0.
  __device__ void fetch_strip(Tile<Width> to, int strip, const Bf16* from, int begin) {
    constexpr int kChunks = Width / 8;
#pragma unroll
    for (int i = 0; i < kStrip * kChunks / kWarp; ++i) {
      const int chunk = threadIdx.x % kWarp + i * kWarp, token = kStrip * strip + chunk / kChunks;
      const int column = 8 * (chunk % kChunks);
      const bool exists = token >= begin && token < tokens_;
      start_copy_or_clear(to.at(token, column), from + (exists ? token - begin : 0) * Width + column, exists);
    }
  }

  /// x for in_proj and what was read.
  __device__ void fetch_inputs() {
    if (!any_output()) return;
#pragma unroll 1
    for (int strip = warp_; strip < strips_; strip += P::kWarps) {
      fetch_strip(x_, strip, tokens_of(of_queries()), 0);
      if (has_output(strip)) {
        fetch_strip(read_, strip, job_.activations.read + rows_before() * Width, round_.skipped);
      }
    }
  }

  /// x for the sums, and in_proj where it has gone.
  __device__ void fetch_tokens() {
#pragma unroll 1
    for (int strip = warp_; strip < strips_; strip += P::kWarps) {
      fetch_strip(x_, strip, tokens_of(of_queries()), 0);
    }
    if constexpr (!P::kInProjStays) {
      fetch_weight(in_proj_, job_.weights.in_proj_weight, 3 * Width);
    }
    close_copies();
  }

  /// What a round's first step begins with; asks for what its sequence needs later.
  __device__ void fetch_gradients(const Round& round) {
    const BlockActivations& activations = job_.activations;
    const int64_t before = round.before(job_.shape);
#pragma unroll 1
    for (int strip = warp_; strip < strips_; strip += P::kWarps) {
      if (strip < round.first_output) continue;
      fetch_strip(dx1_, strip, job_.dx1 + before * Width, round.skipped);
      fetch_strip(normed1_, strip, activations.normed1 + before * Width, round.skipped);
      const int lane = threadIdx.x % kWarp, token = kStrip * strip + lane;
      const bool exists = token >= round.skipped && token < tokens_;
      if (lane < kStrip) {
        start_copy_or_clear(inverse_ + token,
                            activations.inverse1 + before + (exists ? token - round.skipped : 0), exists);
      }
    }
    if constexpr (P::kInProjStays) {
      fetch_weight(out_proj_, job_.weights.out_proj_weight, Width);
    }
    if (!Streams || round.of_queries) prefetch_sequence(round.sequence);
  }
  __device__ void prefetch_sequence(int sequence) {
    const int rows = job_.shape.rows, length = job_.shape.length();
    const int64_t before = int64_t{sequence} * rows;
    prefetch_rows(job_.activations.x + int64_t{sequence} * length * Width, length * Width);
    prefetch_rows(job_.activations.read + before * Width, rows * Width);
    if (job_.keep.projection != nullptr) {
      prefetch_rows(job_.keep.projection + before * (Width / 32), rows * (Width / 32));
    }
    if constexpr (Dropout) {
      const int words = kHeads * attention_words();
      prefetch_rows(job_.keep.attention + before * words, rows * words);
    }
  }
  template <class Value>
  __device__ void prefetch_rows(const Value* from, int count) {
    constexpr int kLine = 128 / sizeof(Value);
#pragma unroll 1
    for (int i = kLine * threadIdx.x; i < count; i += kLine * P::kThreads) prefetch(from + i);
  }

  // Log sums and deltas wait in registers until out_proj's place is free.

  static constexpr int kThreadLogs = P::kScoreVectors / P::kThreads;

  /// Queries that do not exist have no weights.
  __device__ void load_logs(float (&minus_logs)[kThreadLogs]) const {
#pragma unroll
    for (int i = 0; i < kThreadLogs; ++i) {
      const int element = threadIdx.x + i * P::kThreads, head = element / kMostTokens,
                token = element % kMostTokens;
      minus_logs[i] = -INFINITY;
      if (is_output(token)) {
        const int row = head * job_.shape.rows + round_.first_row + token - round_.skipped;
        minus_logs[i] = -job_.activations.log_sums[first_of_heads() + row];
      }
    }
  }
  __device__ void store_logs(const float (&minus_logs)[kThreadLogs]) const {
#pragma unroll
    for (int i = 0; i < kThreadLogs; ++i) minus_log_[threadIdx.x + i * P::kThreads] = minus_logs[i];
  }
  __device__ void store_deltas(int strip, const Sums& deltas) const {
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      const int head = place_.column + i;
      if (head < kHeads) {
        float* of_strip = minus_delta_ + head * kMostTokens + kStrip * strip + place_.row;
        of_strip[0] = -deltas.value[i];
        of_strip[8] = -deltas.value[2 + i];
      }
    }
  }

  // Step 1

  /// Keys and values that queries have for themselves, of a strip, until there is a place for them.
  struct OwnKeys {
    LeftFragment key[kSixteens], value[kSixteens];
  };

  __device__ void prepare(int strip, Sums& deltas, OwnKeys& own) {
    if (has_output(strip)) {
      LeftFragment dprojected[kSixteens];
      norm_backward(strip, dprojected);
      __syncwarp();  // dx1 and normed1 have been read
      if (of_queries()) fetch_strip(context_, strip, tokens_of(false), 0);
      project_back(strip, dprojected);
    } else if (of_queries()) {
      fetch_strip(context_, strip, tokens_of(false), 0);
    }
    copies_arrived();
    __syncwarp();
    if (has_output(strip)) add_deltas(strip, deltas);

    LeftFragment x[kSixteens];
    load_tokens(x, x_, strip);
    if (has_output(strip)) project(query_, 0, strip, x, kLog2E / std::sqrt(static_cast<float>(HeadSize)));
    if (of_queries()) {
      if (has_output(strip)) {
#pragma unroll
        for (int i = 0; i < kSixteens; ++i) {
          own.key[i] = projected(Width + 16 * i, x, 1.0f);
          own.value[i] = projected(2 * Width + 16 * i, x, 1.0f);
        }
      }
      load_tokens(x, context_, strip);
    }
    project(key_, 1, strip, x, 1.0f);
    project(value_, 2, strip, x, 1.0f);
  }
  __device__ void load_tokens(LeftFragment (&x)[kSixteens], Tile<Width> from, int strip) const {
#pragma unroll
    for (int i = 0; i < kSixteens; ++i) x[i] = left_of(rows_from(from, kStrip * strip), 0, 16 * i);
    __syncwarp();
  }

  /// dx1 and normed1 -> du, which waits in dx, and what is kept of it: dp without hidden dropout's scale.
  __device__ void norm_backward(int strip, LeftFragment (&dprojected)[kSixteens]) {
    const int row = kStrip * strip, token = row + place_.row;
    uint32_t keep[2][Width / 32];
    load_projection_words(token, keep);
    add_norm_sums(row);

    uint32_t weight[kEights];
    LeftFragment dx1[kSixteens], normed[kSixteens];
    Sums g_sum = no_sums(), g_normed_sum = no_sums();  // the same in all columns
#pragma unroll
    for (int i = 0; i < kSixteens; ++i) {
      dx1[i] = left_of(rows_from(dx1_, row), 0, 16 * i);
      normed[i] = left_of(rows_from(normed1_, row), 0, 16 * i);
#pragma unroll
      for (int eight = 2 * i; eight < 2 * i + 2; ++eight) {
        weight[eight] = *reinterpret_cast<const uint32_t*>(norm1_weight_ + 8 * eight + place_.column);
      }
      multiply_add(g_sum, dx1[i], weight[2 * i], weight[2 * i + 1]);
      multiply_add(g_normed_sum, multiplied(dx1[i], normed[i]), weight[2 * i], weight[2 * i + 1]);
    }

#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const float inverse = inverse_[token + 8 * half];
      const float shift = g_sum.value[2 * half] * (-1.0f / Width) * inverse;
      const float slope = g_normed_sum.value[2 * half] * (-1.0f / Width) * inverse;
#pragma unroll
      for (int eight = 0; eight < kEights; ++eight) {
        const int part = 2 * (eight % 2) + half;
        const float2 d = unpacked(dx1[eight / 2].part[part]), n = unpacked(normed[eight / 2].part[part]);
        const float2 by = unpacked(weight[eight]);
        dprojected[eight / 2].part[part] = packed(fmaf(d.x * by.x, inverse, fmaf(n.x, slope, shift)),
                                                  fmaf(d.y * by.y, inverse, fmaf(n.y, slope, shift)));
      }
      if (is_output(token + 8 * half)) {
#pragma unroll
        for (int eight = 0; eight < kEights; ++eight) {
          *reinterpret_cast<uint32_t*>(dx_of(token + 8 * half) + 8 * eight) =
              dprojected[eight / 2].part[2 * (eight % 2) + half];
        }
      }
    }
    drop(dprojected, keep);
#pragma unroll
    for (int i = 0; i < kSixteens; ++i) set_left(rows_from(dprojected_, row), 0, 16 * i, dprojected[i]);
  }

  /// Column sums of dx1 and of dx1 · normed1: products with ones, of which each 8 columns get a row of their
  /// own.
  __device__ void add_norm_sums(int row) {
#pragma unroll
    for (int i = 0; i < kSixteens; ++i) {
      const RightFragments dx1 = right_of(rows_from(dx1_, row), 0, 16 * i),
                           normed = right_of(rows_from(normed1_, row), 0, 16 * i);
#pragma unroll
      for (int eight = 0; eight < 2; ++eight) {
        const uint32_t ones = place_.row == 2 * i + eight ? kOnes : 0;
        const uint32_t *d = dx1.part + 2 * eight, *n = normed.part + 2 * eight;
        multiply_add(norm_sums_, {{ones, 0, ones, 0}}, d[0], d[1]);
        multiply_add(norm_sums_, {{0, ones, 0, ones}}, multiplied(d[0], n[0]), multiplied(d[1], n[1]));
      }
    }
  }

  __device__ bool is_output(int token) const {
    return token >= round_.skipped && token < tokens_;
  }
  /// The lane's first columns of dx.
  __device__ Bf16* dx_of(int token) const {
    return job_.dx + (first_token(of_queries()) + token) * Width + place_.column;
  }

  __device__ void load_projection_words(int token, uint32_t (&keep)[2][Width / 32]) const {
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const int64_t row = rows_before() + nearest_row(token + 8 * half);
#pragma unroll
      for (int word = 0; word < Width / 32; ++word) {
        keep[half][word] =
            job_.keep.projection == nullptr ? ~0u : job_.keep.projection[row * (Width / 32) + word];
      }
    }
  }
  /// The row that comes out for a token, or the nearest one.
  __device__ int nearest_row(int token) const {
    return min(max(token - round_.skipped, 0), round_.rows - 1);
  }

  __device__ void drop(LeftFragment (&dprojected)[kSixteens], const uint32_t (&keep)[2][Width / 32]) const {
#pragma unroll
    for (int half = 0; half < 2; ++half) {
#pragma unroll
      for (int word = 0; word < Width / 32; ++word) {
        const uint32_t first = keep[half][word] << (7 - place_.column),
                       second = keep[half][word] << (6 - place_.column);
        dprojected[2 * word].part[half] &= pair_mask<0>(first, second);
        dprojected[2 * word].part[half + 2] &= pair_mask<1>(first, second);
        dprojected[2 * word + 1].part[half] &= pair_mask<2>(first, second);
        dprojected[2 * word + 1].part[half + 2] &= pair_mask<3>(first, second);
      }
    }
  }

  /// dp -> dread.
  __device__ void project_back(int strip, const LeftFragment (&dprojected)[kSixteens]) {
    const float scale = hidden_scale() * attention_scale();
#pragma unroll
    for (int out = 0; out < kSixteens; ++out) {
      Sums sums[2] = {no_sums(), no_sums()};
#pragma unroll
      for (int i = 0; i < kSixteens; ++i) {
        multiply_add(sums[0], sums[1], dprojected[i], right_of(out_proj_, 16 * i, 16 * out));
      }
      multiply_by(sums, scale);
      set_left(rows_from(dread_, kStrip * strip), 0, 16 * out, as_left(sums[0], sums[1]));
    }
  }
  __device__ float hidden_scale() const {
    return job_.keep.projection == nullptr ? 1.0f : job_.keep.hidden_scale;
  }
  __device__ float attention_scale() const {
    return Dropout ? job_.keep.attention_scale : 1.0f;
  }
  template <int Count>
  __device__ static void multiply_by(Sums (&sums)[Count], float scale) {
#pragma unroll
    for (Sums& eight : sums) {
#pragma unroll
      for (float& value : eight.value) value *= scale;
    }
  }

  /// Sums over the columns of a head are products with ones, which get a column for each head. The sums'
  /// products are exact: deltas come off large sums.
  __device__ void add_deltas(int strip, Sums& deltas) const {
    const int row = kStrip * strip;
#pragma unroll
    for (int i = 0; i < kSixteens; ++i) {
      const LeftFragment dread = left_of(rows_from(dread_, row), 0, 16 * i),
                         read = left_of(rows_from(read_, row), 0, 16 * i);
      const LeftFragment products = multiplied(dread, read);
      const uint32_t low = place_.row == 2 * i / kHeadEights ? kOnes : 0;
      const uint32_t high = place_.row == (2 * i + 1) / kHeadEights ? kOnes : 0;
      multiply_add(deltas, products, low, high);
      multiply_add(deltas, rest_of(products, dread, read), low, high);
    }
    const float scale = __fdividef(1.0f, attention_scale());  // which read has, too
#pragma unroll
    for (float& delta : deltas.value) delta *= scale;
  }

  /// A third of in_proj, times `scale`.
  __device__ void project(Tile<Width> to, int third, int strip, const LeftFragment (&x)[kSixteens],
                          float scale) const {
#pragma unroll
    for (int out = 0; out < kSixteens; ++out) {
      set_left(rows_from(to, kStrip * strip), 0, 16 * out, projected(third * Width + 16 * out, x, scale));
    }
  }
  /// 16 columns of it.
  __device__ LeftFragment projected(int column, const LeftFragment (&x)[kSixteens], float scale) const {
    Sums sums[2];
#pragma unroll
    for (int eight = 0; eight < 2; ++eight) {
      const float2 bias =
          unpacked(*reinterpret_cast<const uint32_t*>(in_proj_bias_ + column + 8 * eight + place_.column));
      sums[eight] = {{bias.x, bias.y, bias.x, bias.y}};
    }
#pragma unroll
    for (int i = 0; i < kSixteens; ++i) {
      multiply_add(sums[0], sums[1], x[i], right_of_transposed(in_proj_, column, 16 * i));
    }
    multiply_by(sums, scale);
    return as_left(sums[0], sums[1]);
  }

  // Step 3

  /// Where dprojected and read were.
  __device__ void store_own_keys(const OwnKeys (&own_keys)[P::kWarpStrips]) const {
    if (!of_queries()) return;
#pragma unroll
    for (int own = 0; own < P::kWarpStrips; ++own) {
      const int strip = strip_of(own);
      if (strip >= strips_ || !has_output(strip)) continue;
#pragma unroll
      for (int i = 0; i < kSixteens; ++i) {
        set_left(rows_from(own_key_, kStrip * strip), 0, 16 * i, own_keys[own].key[i]);
        set_left(rows_from(own_value_, kStrip * strip), 0, 16 * i, own_keys[own].value[i]);
      }
    }
    __syncwarp();
  }

  __device__ int attention_words() const {
    return (tokens_ + 31) / 32;
  }
  /// Dropout's words of 32 keys: one for each row that comes out.
  __device__ const uint32_t* words_of(int head, int word) const {
    return Dropout ? attention_keep_ + (head * attention_words() + word) * job_.shape.rows : nullptr;
  }

  /// Words of the lane's queries in a strip: {columns 0-7, columns 8-15}, two neighbours each.
  struct QueryWords {
    uint32_t word[2][2];
  };
  /// `words`: of the lane's first query in a strip all of whose tokens come out.
  __device__ static QueryWords query_words(const uint32_t* words) {
    QueryWords result = {};
    if constexpr (Dropout) result = {{{words[0], words[1]}, {words[8], words[9]}}};
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
    Sums dkey[kHeadEights], dvalue[kHeadEights];
  };

  /// All queries that read the keys of a strip -> their dk and dv.
  __device__ void read_as_keys(int strip, int head) {
    const int column = HeadSize * head, token = kStrip * strip + place_.row;
    Keys keys;
    keys.head = head;
    keys.rotation = 7 - token % 32;
    keys.earliest[0] = job_.shape.causal ? token + of_queries() : 0;
    keys.earliest[1] = job_.shape.causal ? token + 8 + of_queries() : 0;
    keys.key = head_rows<HeadSize>(rows_from(key_, kStrip * strip), column);
    keys.value = head_rows<HeadSize>(rows_from(value_, kStrip * strip), column);
#pragma unroll
    for (int i = 0; i < kHeadEights; ++i) keys.dkey[i] = keys.dvalue[i] = no_sums();
    if (Streams && !of_queries()) take_carried(keys, strip);

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

    if (of_queries()) {
      carry(keys, strip);
    } else {
      multiply_by(keys.dkey, kLn2);  // instead of q's log2 e
      store_head(dkey_, strip, column, keys.dkey);
      store_head(dvalue_, strip, column, keys.dvalue);
    }
  }

  /// The context's keys get their gradients from the queries first and then from the context. In between each
  /// lane puts aside what it has summed.
  __device__ void carry(const Keys& keys, int strip) const {
#pragma unroll
    for (int i = 0; i < kHeadEights; ++i) {
      const float *dkey = keys.dkey[i].value, *dvalue = keys.dvalue[i].value;
      carried(strip, keys.head)[kWarp * i] = {packed(dkey[0], dkey[1]), packed(dkey[2], dkey[3]),
                                              packed(dvalue[0], dvalue[1]), packed(dvalue[2], dvalue[3])};
    }
  }
  __device__ void take_carried(Keys& keys, int strip) const {
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
  __device__ uint4* carried(int strip, int head) const {
    uint4* const of_part = reinterpret_cast<uint4*>(job_.carried + int64_t{blockIdx.x} * P::kCarried);
    return of_part + (strip * kHeads + head) * kHeadEights * kWarp + threadIdx.x % kWarp;
  }

  /// Scores lie with keys as rows. Edge: some queries come before some of the keys.
  template <bool Edge>
  __device__ void add_queries(Keys& keys, int strip, const QueryWords& words) {
    const int row = kStrip * strip, column = HeadSize * keys.head;
    const Tile<Width> query = rows_from(query_, row), dread = rows_from(dread_, row);
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

  /// Tokens that do not exist get 0.
  __device__ void store_head(Tile<Width> to, int strip, int column, const Sums (&sums)[kHeadEights]) const {
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

  /// Words of 32 keys of the lane's two queries.
  struct KeyWords {
    uint32_t word[2];
  };

  /// A head of a strip of queries, and what its keys add to the gradient.
  struct Queries {
    int column;
    int behind[2];  ///< of the lane's two queries: the first key that is not read
    HeadRows<HeadSize> query, dread;
    Sums minus_log, minus_delta;
    Sums dquery[kHeadEights];
  };

  /// All keys that the warp's queries read -> their dq.
  __device__ void read_as_queries(uint32_t (&dquery)[P::kWarpStrips][kEights][2]) {
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

  __device__ void read_as_queries(int strip, int head, Sums (&dquery)[kHeadEights]) {
    const int column = HeadSize * head, token = kStrip * strip + place_.row;
    Queries queries;
    queries.column = column;
    queries.behind[0] = job_.shape.causal ? token + !of_queries() : tokens_;
    queries.behind[1] = job_.shape.causal ? token + 8 + !of_queries() : tokens_;
    queries.query = head_rows<HeadSize>(rows_from(query_, kStrip * strip), column);
    queries.dread = head_rows<HeadSize>(rows_from(dread_, kStrip * strip), column);
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

    multiply_by(queries.dquery, 1.0f / std::sqrt(static_cast<float>(HeadSize)));
#pragma unroll
    for (int i = 0; i < kHeadEights; ++i) dquery[i] = queries.dquery[i];
  }
  struct KeyPointers {
    const uint32_t* of_row[2];
  };
  __device__ static KeyWords key_words(const KeyPointers& words) {
    KeyWords result = {};
    if constexpr (Dropout) result = {{*words.of_row[0], *words.of_row[1]}};
    return result;
  }

  /// Scores lie with queries as rows. Edge: some of the keys are not read. Half: of the words.
  template <bool Edge, int Half>
  __device__ void add_keys(Queries& queries, int strip, const KeyWords& words) {
    const int row = kStrip * strip;
    const Tile<Width> key = rows_from(key_, row), value = rows_from(value_, row);
    Sums scores[2] = {queries.minus_log, queries.minus_log};
    Sums dweights[2] = {queries.minus_delta, queries.minus_delta};
    multiply_with_rows<HeadSize>(scores, queries.query, key, queries.column);
    multiply_with_rows<HeadSize>(dweights, queries.dread, value, queries.column);

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
        if constexpr (Dropout)
          mask = eight == 0 ? pair_mask<2 * Half>(first, second) : pair_mask<2 * Half + 1>(first, second);
        dscores.part[2 * eight + half] =
            multiplied(packed(weight[0], weight[1]), (dpair & mask) | (minus_delta & ~mask));
      }
    }
    add_rows<HeadSize>(queries.dquery, dscores, key, queries.column);
  }

  /// What queries read of themselves; then the gradients of these keys and values stand in their place.
  /// `words`: of the context's keys in the same strip.
  __device__ void add_own_keys(Queries& queries, int strip, const KeyWords& words) const {
    const Tile<Width> own_key = rows_from(own_key_, kStrip * strip),
                      own_value = rows_from(own_value_, kStrip * strip);
    const HeadRows<HeadSize> key = head_rows<HeadSize>(own_key, queries.column),
                             value = head_rows<HeadSize>(own_value, queries.column);
    __syncwarp();
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const int row = place_.row + 8 * half;
      const bool kept = !Dropout || (words.word[half] >> (kStrip * strip + row) % 32 & 1) != 0;
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
        own_key.set_pair(row, column, packed(kLn2 * dscore * q.x, kLn2 * dscore * q.y));
        own_value.set_pair(row, column, kept ? packed(weight * dread.x, weight * dread.y) : 0);
      }
    }
  }
  /// Of the lane's first rows or, half = 1, its second.
  __device__ static float product_of_rows(const HeadRows<HeadSize>& left, const HeadRows<HeadSize>& right,
                                          int half) {
    float sum = 0.0f;
#pragma unroll
    for (int eight = 0; eight < kHeadEights; ++eight) {
      const float2 a = unpacked(left.part[eight][half]), b = unpacked(right.part[eight][half]);
      sum = fmaf(a.x, b.x, fmaf(a.y, b.y, sum));
    }
    return quad_sum(sum);
  }

  /// Where q was.
  __device__ void store_dquery(const uint32_t (&dquery)[P::kWarpStrips][kEights][2]) const {
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

  // Step 4

  __device__ void make_dx(int strip) const {
    const int token = kStrip * strip + place_.row;
    uint32_t du[2][kEights];
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const bool has_residual = is_output(token + 8 * half);
#pragma unroll
      for (int eight = 0; eight < kEights; ++eight) {
        du[half][eight] = 0;
        if (has_residual)
          du[half][eight] = *reinterpret_cast<const uint32_t*>(dx_of(token + 8 * half) + 8 * eight);
      }
    }

    Sums sums[kEights];
#pragma unroll
    for (Sums& eight : sums) eight = no_sums();
    if (has_output(strip)) add_projected(sums, dquery_, 0, strip);
    if (strip >= first_keys()) {
      add_projected(sums, dkey_, 1, strip);
      add_projected(sums, dvalue_, 2, strip);
    }

#pragma unroll
    for (int half = 0; half < 2; ++half) {
      if (token + 8 * half < tokens_) {
#pragma unroll
        for (int eight = 0; eight < kEights; ++eight) {
          const float2 residual = unpacked(du[half][eight]);
          *reinterpret_cast<uint32_t*>(dx_of(token + 8 * half) + 8 * eight) =
              packed(residual.x + sums[eight].value[2 * half], residual.y + sums[eight].value[2 * half + 1]);
        }
      }
    }
  }
  __device__ void add_projected(Sums (&sums)[kEights], Tile<Width> gradient, int third, int strip) const {
#pragma unroll
    for (int i = 0; i < kSixteens; ++i) {
      const LeftFragment left = left_of(rows_from(gradient, kStrip * strip), 0, 16 * i);
#pragma unroll
      for (int out = 0; out < kSixteens; ++out) {
        multiply_add(sums[2 * out], sums[2 * out + 1], left,
                     right_of(in_proj_, third * Width + 16 * i, 16 * out));
      }
    }
  }

  // Steps 2 and 5. A warp has a block of 16 × 16 of each of four matrices: of out_proj's gradient, and of the
  // three of in_proj's. Where there are more warps than blocks, they share the tokens. Column sums are
  // products with ones; a warp has 16 columns of one of four tiles.

  static constexpr int kOwners = kSixteens * kSixteens;
  static constexpr int kShares = P::kWarps / kOwners;
  static_assert(P::kWarps == 4 * kSixteens, "one block of column sums a warp");

  __device__ int owner() const {
    return warp_ % kOwners;
  }
  __device__ int share() const {
    return warp_ / kOwners;
  }
  __device__ int block_row() const {
    return 16 * (owner() / kSixteens);
  }
  __device__ int block_column() const {
    return 16 * (owner() % kSixteens);
  }
  __device__ int summed_tile() const {
    return warp_ / kSixteens;
  }
  __device__ int summed_column() const {
    return 16 * (warp_ % kSixteens);
  }

  __device__ void add_out_proj_sums() {
#pragma unroll 2
    for (int strip = round_.first_output + share(); strip < strips_; strip += kShares) {
      multiply_add(out_proj_sums_[0], out_proj_sums_[1],
                   left_of_transposed(rows_from(dprojected_, kStrip * strip), 0, block_row()),
                   right_of(rows_from(read_, kStrip * strip), 0, block_column()));
    }
    if (summed_tile() == 3) add_columns(dprojected_, round_.first_output);
  }

  __device__ void add_in_proj_sums() {
    int strip = first_keys() + share();
    for (; strip < round_.first_output; strip += kShares) add_in_proj_strip<false>(strip);
#pragma unroll 2
    for (; strip < strips_; strip += kShares) add_in_proj_strip<true>(strip);
    if (summed_tile() == 0) add_columns(dquery_, round_.first_output);
    if (summed_tile() == 1) add_columns(dkey_, first_keys());
    if (summed_tile() == 2) add_columns(dvalue_, first_keys());
  }
  template <bool HasOutput>
  __device__ void add_in_proj_strip(int strip) {
    const int row = kStrip * strip;
    const RightFragments x = right_of(rows_from(x_, row), 0, block_column());
    if constexpr (HasOutput) {
      multiply_add(in_proj_sums_[0][0], in_proj_sums_[0][1],
                   left_of_transposed(rows_from(dquery_, row), 0, block_row()), x);
    }
    multiply_add(in_proj_sums_[1][0], in_proj_sums_[1][1],
                 left_of_transposed(rows_from(dkey_, row), 0, block_row()), x);
    multiply_add(in_proj_sums_[2][0], in_proj_sums_[2][1],
                 left_of_transposed(rows_from(dvalue_, row), 0, block_row()), x);
  }

  __device__ void add_columns(Tile<Width> tile, int first_strip) {
    Sums sums = {{column_sums_[0], column_sums_[0], column_sums_[1], column_sums_[1]}};
#pragma unroll 4
    for (int strip = first_strip; strip < strips_; ++strip) {
      multiply_add(sums, left_of_transposed(rows_from(tile, kStrip * strip), 0, summed_column()), kOnes,
                   kOnes);
    }
    column_sums_[0] = sums.value[0];
    column_sums_[1] = sums.value[2];
  }

  __device__ void clear_sums() {
    out_proj_sums_[0] = out_proj_sums_[1] = norm_sums_ = no_sums();
    column_sums_[0] = column_sums_[1] = 0.0f;
#pragma unroll
    for (Sums(&third)[2] : in_proj_sums_) third[0] = third[1] = no_sums();
  }

  // The end: what the thread block has summed. The tiles are free.

  __device__ void write_sums() {
    constexpr AttentionGradients kPlaces = AttentionGradients::of(Width);
    float* part = job_.parts + int64_t{blockIdx.x} * kPlaces.total;
    clear_gaps<kPlaces.in_proj_bias, 3 * Width, kPlaces.out_proj_weight>(part);
    clear_gaps<kPlaces.out_proj_bias, Width, kPlaces.norm1_weight>(part);
    clear_gaps<kPlaces.norm1_weight, Width, kPlaces.norm1_bias>(part);
    clear_gaps<kPlaces.norm1_bias, Width, kPlaces.total>(part);

    if constexpr (kShares > 1) add_shares();
    if (share() == 0) {
#pragma unroll
      for (int third = 0; third < 3; ++third) {
        write_block(part + kPlaces.in_proj_weight + third * Width * Width, in_proj_sums_[third]);
      }
      multiply_by(out_proj_sums_, hidden_scale());
      write_block(part + kPlaces.out_proj_weight, out_proj_sums_);
    }
    if (place_.column == 0) {
      float* to = summed_tile() == 3 ? part + kPlaces.out_proj_bias
                                     : part + kPlaces.in_proj_bias + summed_tile() * Width;
      const float scale = summed_tile() == 3 ? hidden_scale() : 1.0f;
      to[summed_column() + place_.row] = column_sums_[0] * scale;
      to[summed_column() + place_.row + 8] = column_sums_[1] * scale;
    }
    write_norm_sums(part + kPlaces.norm1_weight, part + kPlaces.norm1_bias);
  }
  template <int Begin, int Size, int End>
  __device__ void clear_gaps(float* part) const {
#pragma unroll 1
    for (int i = Begin + Size + threadIdx.x; i < End; i += P::kThreads) part[i] = 0.0f;
  }
  __device__ void write_block(float* matrix, const Sums (&sums)[2]) const {
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      const int row = block_row() + place_.row + 8 * (i % 2),
                column = block_column() + 8 * (i / 2) + place_.column;
      *reinterpret_cast<float2*>(matrix + row * Width + column) = {sums[i / 2].value[2 * (i % 2)],
                                                                   sums[i / 2].value[2 * (i % 2) + 1]};
    }
  }

  /// The first share takes up the others.
  __device__ void add_shares() {
    constexpr int kSums = 8;  ///< Sums of a lane
    float* slots = reinterpret_cast<float*>(shared_) + 4 * kSums * kWarp * owner() + threadIdx.x % kWarp;
#pragma unroll 1
    for (int giver = 1; giver < kShares; ++giver) {
      if (share() == giver) {
#pragma unroll
        for (int i = 0; i < 4 * kSums; ++i) slots[kWarp * i] = block_sums(i / 4).value[i % 4];
      }
      __syncthreads();
      if (share() == 0) {
#pragma unroll
        for (int i = 0; i < 4 * kSums; ++i) block_sums(i / 4).value[i % 4] += slots[kWarp * i];
      }
      __syncthreads();
    }
  }
  __device__ Sums& block_sums(int i) {
    return i < 6 ? in_proj_sums_[i / 2][i % 2] : out_proj_sums_[i % 2];
  }

  __device__ void write_norm_sums(float* weight, float* bias) {
    float* slots = reinterpret_cast<float*>(shared_);  // (warps, 2, Width)
    if (place_.row < kEights) {
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        slots[2 * Width * warp_ + Width * (i / 2) + 8 * place_.row + place_.column + i % 2] =
            norm_sums_.value[i];
      }
    }
    __syncthreads();
    const int column = threadIdx.x;
    if (column >= 2 * Width) return;
    float sum = 0.0f;
#pragma unroll
    for (int other = 0; other < P::kWarps; ++other) sum += slots[2 * Width * other + column];
    (column < Width ? bias : weight)[column % Width] = sum;
  }

  const Job& job_;
  char* const shared_;
  /// One place has several names, see above.
  const Tile<Width> query_, dquery_, key_, x_, value_, dx1_, context_, dread_, normed1_, dprojected_, dkey_,
      own_key_, read_, dvalue_, own_value_;
  const Tile<Width> in_proj_, out_proj_;
  float *const minus_log_, *const minus_delta_, *const inverse_;
  Bf16 *const in_proj_bias_, *const norm1_weight_;
  const int warp_;
  const LanePlace place_;
  const int tokens_, strips_;
  Round round_;
  const uint32_t* attention_keep_;  ///< the round's

  Sums in_proj_sums_[3][2], out_proj_sums_[2];
  float column_sums_[2];  ///< of two columns of a tile, 8 apart: the lane's rows of a product with ones
  Sums
      norm_sums_;  ///< (16, 8): row n is columns 8 n and on of dx1 for norm1's bias, row 8 + n for its weight
};

template <int Width, int HeadSize, bool Dropout, bool Streams>
__global__ void __launch_bounds__(Plan<Width, HeadSize>::kThreads, Plan<Width, HeadSize>::kBlocks)
    attention_backward_kernel(const __grid_constant__ Job job) {
  AttentionHalf<Width, HeadSize, Dropout, Streams>(job, dynamic_shared_memory()).run();
}

template <int Width, int HeadSize, bool Dropout, bool Streams>
void launch(const Job& job, cudaStream_t stream) {
  using P = Plan<Width, HeadSize>;
  gpu::launch("attention_backward_kernel", attention_backward_kernel<Width, HeadSize, Dropout, Streams>,
              attention_backward_parts(job.shape), P::kThreads, P::kBytes, stream, job);
}

template <int Width, int HeadSize>
void launch(const Job& job, cudaStream_t stream) {
  const bool dropout = job.keep.attention != nullptr;
  if (job.shape.queries > 0) {
    dropout ? launch<Width, HeadSize, true, true>(job, stream)
            : launch<Width, HeadSize, false, true>(job, stream);
  } else {
    dropout ? launch<Width, HeadSize, true, false>(job, stream)
            : launch<Width, HeadSize, false, false>(job, stream);
  }
}

}  // namespace

int attention_backward_parts(const BlockShape& shape) {
  return std::min(shape.sequences, 64 / shape.width * gpu::multiprocessors());
}

int64_t attention_backward_carried(const BlockShape& shape) {
  return shape.queries == 0 ? 0 : int64_t{attention_backward_parts(shape)} * carried_elements(shape.width);
}

void attention_backward(const BlockShape& shape, const BlockWeights& weights, const KeepBits& keep,
                        const BlockActivations& activations, const Bf16* dx1, Bf16* dx, float* parts,
                        Bf16* carried, cudaStream_t stream) {
  const Job job = {shape, weights, keep, activations, dx1, dx, parts, carried};
  const int head_size = shape.width / shape.heads;
  if (shape.width == 64) {
    if (head_size == 8) launch<64, 8>(job, stream);
    if (head_size == 16) launch<64, 16>(job, stream);
    if (head_size == 32) launch<64, 32>(job, stream);
  } else {
    if (head_size == 8) launch<32, 8>(job, stream);
    if (head_size == 16) launch<32, 16>(job, stream);
    if (head_size == 32) launch<32, 32>(job, stream);
  }
}

}  // namespace adtrain::kernels
