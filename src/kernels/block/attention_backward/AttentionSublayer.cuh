#pragma once

#include <cmath>
#include <type_traits>

#include "kernels/attention/resident/backward/Fragments.cuh"
#include "kernels/attention/resident/backward/WarpTilePairs.cuh"
#include "kernels/block/attention_backward/Plan.cuh"
#include "kernels/primitives/EarlyStart.cuh"
#include "kernels/primitives/PartialSums.cuh"
#include "kernels/primitives/Tile.cuh"
#include "kernels/primitives/WarpgroupProducts.cuh"
#include "kernels/rope/RopeAngles.cuh"

/// The backward pass of a post-norm block's x1 = norm1(x + drop(out_proj(attention(in_proj(x))))). For a
/// sequence:
///
///     du = inverse1 (g − mean(g) − normed1 · mean(g · normed1)),  g = dx1 · norm1_weight
///     dp = drop'(du),  d_attention_output = dp · out_proj_weight
///     a head:  P = exp2(q kᵀ − lse),  dP = drop'(d_attention_output vᵀ)
///              dS = P (dP − delta),  delta = Σ d_attention_output · attention_output
///              dq = dS k,  dk = dSᵀ q,  dv = drop(P)ᵀ d_attention_output
///     dx = du + [dq dk dv] · in_proj_weight
///
/// and, over all sequences, dout_proj_weight = dpᵀ attention_output, din_proj_weight = [dq dk dv]ᵀ x and the
/// sums for the vectors.
///
/// A pre-norm block's n1 -> out_proj(attention(rotated(in_proj(n1)))) is the same with n1 as x, without norm
/// and residual: dp = dx1, dn1 = [dq dk dv] · in_proj_weight. Queries and keys are rotated before they are
/// rounded, and dq and dk are rotated back. In shared memory in_proj's rows are ordered by thirds for both
/// blocks.
///
/// q, k and v are recomputed. q includes the factor log2 e / √head size, so that scores are exponents of 2.
/// d_attention_output in shared memory includes dropout's scale of the weights.
///
/// A thread block is persistent and takes one sequence at a time. Each warp has warp tiles of 16 tokens.
/// There is a barrier after each of these steps:
///
///     1. each warp computes du, dp, d_attention_output, delta, q, k and v of its tokens;
///     2. sums for out_proj_weight;
///     3. the tokens as queries, with all keys that they read: dq; as keys, with all queries that read them:
///        dk, dv. The weights are computed in both cases, so that warps exchange nothing. A warp has its own
///        tokens as queries, and then takes heads of any tokens as keys until none are left;
///     4. dx;
///     5. sums for in_proj_weight.
///
/// A sequence with a second stream goes through these steps in two rounds. The first round is for its
/// queries: they read the context's keys, and each reads its own key, which step 1 computes from the query.
/// After this round the gradients of own keys and values are complete. Those of the context's keys and values
/// are carried in global memory to the second round, which is for the context.
///
/// Warp tiles of padding are skipped, and their dx is 0. Keys that are padding are treated as having no
/// queries: only padding reads them, and its incoming gradients are 0.
///
/// The sums for the weights stay in registers until the last sequence.
///
/// Shared memory, with D = width and H = heads, for 256 tokens: 226 of 227 KiB for D = 64, else at most half
/// as much, so that two thread blocks share a multiprocessor. A tile is (256, D), 512 D bytes. Numbers are
/// steps; "4 before" is step 4 of the previous round:
///
///     tile 0      query: 1-3, dquery: 4-5
///     tile 1      x: 1, key: 1-3, x again: 4-5
///     tile 2      dx1: 4 before-1, for queries the context's x: 1, value: 1-3
///     tile 3      normed1: 4 before-1, d_attention_output: 1-3
///     tile 4      dprojected: 1-2, queries' own keys: 3, dkey: 3-5
///     tile 5      attention_output: 1-2, queries' own values: 3, dvalue: 3-5
///     in_proj     (3 D, D), 6 D² bytes: the whole launch
///     out_proj    (D, D), 2 D² bytes: 4 before-1; in the same place:
///     minus_log, minus_delta  (H, 256) fp32 each, 2 K H bytes: 2-3. For eight heads and D = 64 this place is
///                 too small: they take in_proj's place, which is filled again for 4
///     inverse     (256) fp32, 1 K: 4 before-1
///     vectors     (4 D), 8 D bytes: in_proj_bias, norm1_weight: the whole launch
///     next_keys   which head of a warp tile's keys is next: 3
///
/// At width 64 four neighbouring warps multiply by weights together (wgmma), and so do those who have the
/// sums for one matrix of weights; see Group.
namespace adtrain::kernels::backward_pass {

constexpr uint32_t kOnes = 0x3f803f80u;  ///< two bf16 ones

/// The work of one thread in a launch. V: a Variant.
template <class V>
class AttentionSublayer {
  using Job = typename V::Block::Job;
  using P = Plan<V::kWidth, V::kHeadSize>;
  using RopeOfBlock = std::conditional_t<V::Block::kHasRope, RopeAngles<V::kHeadSize>, NoRope>;
  static constexpr int kWidth = V::kWidth, kHeadSize = V::kHeadSize;
  static constexpr bool kDropout = V::kDropout, kStreams = V::kStreams;
  static constexpr bool kNormAfter = V::Block::kNormAfter, kHasRope = V::Block::kHasRope;
  static constexpr bool kPadded = V::Block::kPadded;
  static constexpr bool kByWarpgroups = kWidth == 64;
  static constexpr int kHeads = P::kHeads;
  static constexpr int kEights = kWidth / 8;
  static constexpr int kSixteens = kWidth / 16;
  static constexpr int kHeadEights = kHeadSize / 8;
  using Pairs = WarpTilePairs<kWidth, kHeadSize, kDropout, kStreams, kPadded>;

 public:
  __device__ AttentionSublayer(const Job& job, char* shared)
      : job_(job),
        shared_(shared),
        query_{tile(0)},
        dquery_{tile(0)},
        key_{tile(1)},
        x_{tile(1)},
        value_{tile(2)},
        dx1_{tile(2)},
        context_{tile(2)},
        d_attention_output_{tile(3)},
        normed1_{tile(3)},
        dprojected_{tile(4)},
        dkey_{tile(4)},
        own_key_{tile(4)},
        attention_output_{tile(5)},
        dvalue_{tile(5)},
        own_value_{tile(5)},
        in_proj_{reinterpret_cast<Bf16*>(shared + P::kInProj)},
        out_proj_{reinterpret_cast<Bf16*>(shared + P::kOutProj)},
        minus_log_(reinterpret_cast<float*>(shared + P::kScores)),
        minus_delta_(minus_log_ + P::kScoreVectors),
        inverse_(reinterpret_cast<float*>(shared + P::kInverse)),
        next_keys_(reinterpret_cast<int*>(shared + P::kNextKeys)),
        in_proj_bias_(reinterpret_cast<Bf16*>(shared + P::kVectors)),
        norm1_weight_(in_proj_bias_ + 3 * kWidth),
        warp_(__shfl_sync(kAllLanes, threadIdx.x / kWarp, 0)),
        place_(lane_place()),
        tokens_(job.shape.tokens),
        warp_tiles_((tokens_ + kWarpTile - 1) / kWarpTile),
        pairs_(job.shape, {query_, d_attention_output_, key_, value_, minus_log_, minus_delta_}) {}

  __device__ void run() {
    clear_sums();
    fetch_weights();
    follow_kernels_ahead();
    round_ = Round::of<kStreams, kPadded>(job_.shape, blockIdx.x, kStreams);
    fetch_gradients(round_);
    copies_arrived();
    show();
    __syncthreads();
#pragma unroll 1
    while (round_.sequence < job_.shape.sequences) {
      pairs_.begin(round_, keep_of_round());
      fetch_inputs();
      Sums deltas[P::kTilesOfWarp];
      OwnKeys own_keys[P::kTilesOfWarp];
#pragma unroll
      for (int own = 0; own < P::kTilesOfWarp; ++own) {
        deltas[own] = no_sums();
        const int warp_tile = warp_tile_of(own);
        if (any_output() && has_tokens(group_of(warp_tile))) prepare(warp_tile, deltas[own], own_keys[own]);
      }
      show();
      float logs[kThreadLogs];  // loaded no earlier for want of registers, but prefetched
      load_logs(logs);
      __syncthreads();

      store_logs(logs);
#pragma unroll
      for (int own = 0; own < P::kTilesOfWarp; ++own) {
        if (has_output(warp_tile_of(own))) store_deltas(warp_tile_of(own), deltas[own]);
      }
      if (threadIdx.x == 0) *next_keys_ = 0;
      add_out_proj_sums();
      __syncthreads();

      if constexpr (kStreams) store_own_keys(own_keys);
      uint32_t dquery[P::kTilesOfWarp][kEights][2] = {};
      read_as_queries(dquery);
      read_as_keys();
      show();
      __syncthreads();

      Residuals residuals[P::kTilesOfWarp] = {};
#pragma unroll
      for (int own = 0; own < P::kTilesOfWarp; ++own) load_residuals(warp_tile_of(own), residuals[own]);
      fetch_tokens();
      const Round next = next_round();
      if (next.sequence < job_.shape.sequences) fetch_gradients(next);
      close_copies();
      store_dquery(dquery);
      if constexpr (!P::kInProjStays) copies_arrived();
      show();
      if (!P::kInProjStays || one_output_tile()) {
        __syncthreads();
      } else {
        meet_group();
      }
#pragma unroll
      for (int own = 0; own < P::kTilesOfWarp; ++own) {
        const int warp_tile = warp_tile_of(own);
        if (group_of(warp_tile).first < warp_tiles_) make_dx(warp_tile, residuals[own]);
      }
      copies_arrived_but_last();
      show();
      __syncthreads();

      add_in_proj_sums();
      copies_arrived();
      show();
      __syncthreads();
      round_ = next_round();
    }
    write_sums();
    __syncthreads();
    partial_sums::add_parts_ahead<P::kThreads>(job_.ahead, job_.shape.sequences, shared_);
  }

 private:
  // Tiles, warp tiles and rows

  __device__ Bf16* tile(int number) const {
    return reinterpret_cast<Bf16*>(shared_ + number * P::kTile);
  }
  __device__ int warp_tile_of(int own) const {
    return warp_ + own * P::kWarps;
  }
  __device__ bool of_queries() const {
    return kStreams && round_.of_queries;
  }
  __device__ bool has_output(int warp_tile) const {
    return warp_tile >= round_.first_output && warp_tile < warp_tiles_;
  }
  /// Whether the round has queries with outputs; else it only computes gradients of keys and values.
  __device__ bool any_output() const {
    return !kStreams || round_.first_output < warp_tiles_;
  }
  /// The first warp tile whose keys and values get gradients in this round: the context's, or the queries'
  /// own.
  __device__ int first_keys() const {
    return of_queries() ? round_.first_output : first_warp_tile();
  }
  __device__ int first_token() const {
    return kPadded ? round_.first_token : 0;
  }
  /// Warp tiles before it are all padding and are skipped.
  __device__ int first_warp_tile() const {
    return first_token() / kWarpTile;
  }
  __device__ bool pads(int warp_tile) const {
    return kPadded && warp_tile < first_warp_tile();
  }
  /// Whether the warp tile's keys and values get gradients in this round.
  __device__ bool has_keys(int warp_tile) const {
    return warp_tile >= first_keys() && warp_tile < warp_tiles_;
  }
  /// Neighbouring warp tiles whose warps multiply together: those of a warpgroup, which has products of its
  /// own, at width 64. A warp takes part where its own warp tile has nothing to multiply.
  struct Group {
    int first, last;
  };
  __device__ static Group group_of(int warp_tile) {
    constexpr int kSize = kByWarpgroups ? kWarpsOfGroup : 1;
    const int first = warp_tile / kSize * kSize;
    return {first, first + kSize - 1};
  }
  /// Makes what this thread has written to shared memory visible to products of warpgroups, after a barrier.
  __device__ static void show() {
    if constexpr (kByWarpgroups) show_to_products();
  }
  /// Waits for the warps of the own warp tile's group.
  __device__ void meet_group() const {
    if constexpr (kByWarpgroups) {
      group_barrier(1 + warp_ / kWarpsOfGroup, kWarpsOfGroup * kWarp);
    } else {
      __syncwarp();
    }
  }
  /// Whether one of the group's warp tiles has tokens that are not padding.
  __device__ bool has_tokens(const Group& group) const {
    return group.first < warp_tiles_ && group.last >= first_warp_tile();
  }
  __device__ bool has_output(const Group& group) const {
    return group.first < warp_tiles_ && group.last >= round_.first_output;
  }
  /// Whether only one warp tile has queries. Then its heads are divided among the warps in step 3. This does
  /// not hold for queries that have keys of their own.
  __device__ bool one_output_tile() const {
    return round_.first_output == warp_tiles_ - 1 && !of_queries();
  }
  __device__ Round next_round() const {
    if (of_queries()) return Round::of<kStreams, kPadded>(job_.shape, round_.sequence, false);
    return Round::of<kStreams, kPadded>(job_.shape, round_.sequence + static_cast<int>(gridDim.x), kStreams);
  }
  __device__ int64_t rows_before() const {
    return round_.before(job_.shape);
  }
  /// The number of rows of heads before the sequence, in arrays with a row for each head.
  __device__ int64_t first_of_heads() const {
    return int64_t{round_.sequence} * job_.shape.rows * kHeads;
  }
  /// The sequence's first row in x: of the context, or such that each query is in the row of the token whose
  /// position it takes.
  __device__ int64_t first_row(bool of_queries) const {
    return int64_t{round_.sequence} * job_.shape.length() + (of_queries ? job_.shape.queries : 0);
  }
  __device__ const Bf16* tokens_of(bool of_queries) const {
    return job_.activations.x + first_row(of_queries) * kWidth;
  }
  /// Whether the round's stream has this token.
  __device__ bool exists(int token) const {
    return token < tokens_ && (!of_queries() || token >= tokens_ - job_.shape.queries);
  }
  __device__ bool is_output(int token) const {
    return token >= round_.skipped && token < tokens_;
  }
  /// The address of the lane's first columns of a token's dx.
  __device__ Bf16* dx_of(int token) const {
    return job_.dx + (first_row(of_queries()) + token) * kWidth + place_.column;
  }

  // Scales and rotations

  __device__ float hidden_scale() const {
    return !kNormAfter || job_.keep.projection == nullptr ? 1.0f : job_.keep.hidden_scale;
  }
  __device__ float attention_scale() const {
    return kDropout ? job_.keep.attention_scale : 1.0f;
  }
  /// The rotation of the warp tile's queries and keys, and the inverse rotation for their gradients.
  __device__ RopeOfBlock angles_of(int warp_tile) const {
    if constexpr (kHasRope)
      return RopeOfBlock::of(job_.cosines, job_.sines, kWarpTile * warp_tile, tokens_, 1.0f);
    return {};
  }
  __device__ RopeOfBlock rotate_back(int warp_tile) const {
    if constexpr (kHasRope)
      return RopeOfBlock::of(job_.cosines, job_.sines, kWarpTile * warp_tile, tokens_, -1.0f);
    return {};
  }

  // Copies to shared memory. lse and deltas stay in registers until out_proj's place is free.

  static constexpr int kThreadLogs = P::kScoreVectors / P::kThreads;

  __device__ void fetch_weights();
  __device__ void fetch_in_proj();
  __device__ void fetch_weight(Tile<kWidth> to, const Bf16* from, int rows) const;
  template <class PlaceOf>
  __device__ void fetch_weight(Tile<kWidth> to, const Bf16* from, int rows, PlaceOf place_of) const;
  __device__ void fetch_warp_tile(Tile<kWidth> to, int warp_tile, const Bf16* from, int begin);
  __device__ void fetch_inputs();
  __device__ void fetch_tokens();
  __device__ void fetch_gradients(const Round& round);
  __device__ void prefetch_round(const Round& round);
  __device__ void prefetch_keep_of_round();
  template <int Threads = P::kThreads, class Value>
  __device__ void prefetch_rows(const Value* from, int count);
  __device__ void load_logs(float (&logs)[kThreadLogs]) const;
  __device__ void store_logs(const float (&logs)[kThreadLogs]) const;
  __device__ void store_deltas(int warp_tile, const Sums& deltas) const;

  // Steps 1 and 4

  /// The own keys and values of a warp tile's queries. They stay in registers until their tiles are free.
  struct OwnKeys {
    LeftFragment key[kSixteens], value[kSixteens];
  };

  __device__ static void add_product_with_rows(Sums (&sums)[4], LeftFragment (&left)[kSixteens],
                                               Tile<kWidth> weight);
  __device__ static void add_product_over_rows(Sums (&sums)[kEights], LeftFragment (&left)[kSixteens],
                                               Tile<kWidth> weight);
  __device__ void prepare(int warp_tile, Sums& deltas, OwnKeys& own);
  __device__ void load_tokens(LeftFragment (&x)[kSixteens], Tile<kWidth> from, int warp_tile) const;
  __device__ void take_gradients(int warp_tile, LeftFragment (&dprojected)[kSixteens]) const;
  __device__ void norm_backward(int warp_tile, LeftFragment (&dprojected)[kSixteens]);
  __device__ void add_norm_sums(int row);
  __device__ void load_projection_words(int token, uint32_t (&keep)[2][kWidth / 32]) const;
  __device__ void drop(LeftFragment (&dprojected)[kSixteens], const uint32_t (&keep)[2][kWidth / 32]) const;
  __device__ void project_back(int warp_tile, LeftFragment (&dprojected)[kSixteens]);
  __device__ void add_deltas(int warp_tile, Sums& deltas) const;
  template <class Angles>
  __device__ void project(Tile<kWidth> to, int third, int warp_tile, LeftFragment (&x)[kSixteens],
                          float scale, const Angles& angles) const;
  template <class Angles>
  __device__ void projected(LeftFragment (&columns)[kSixteens], int third, LeftFragment (&x)[kSixteens],
                            float scale, const Angles& angles) const;
  __device__ void store_own_keys(const OwnKeys (&own_keys)[P::kTilesOfWarp]) const;
  /// What a lane has of its warp tile's du.
  struct Residuals {
    uint32_t pair[2][kEights];
  };
  __device__ void make_dx(int warp_tile, const Residuals& du) const;
  __device__ void load_residuals(int warp_tile, Residuals& du) const;
  __device__ void add_projected(Sums (&sums)[kEights], Tile<kWidth> gradient, int third, int warp_tile) const;

  // Step 3

  using Keys = typename Pairs::Keys;
  using KeyWords = typename Pairs::KeyWords;
  using Queries = typename Pairs::Queries;

  __device__ int attention_words() const {
    return (tokens_ + 31) / 32;
  }
  __device__ const uint32_t* keep_of_round() const {
    if constexpr (!kDropout) return nullptr;
    return job_.keep.attention + first_of_heads() * attention_words() + round_.first_row;
  }

  __device__ void read_as_keys();
  __device__ int take_keys() const;
  __device__ void read_as_keys(int warp_tile, int head);
  __device__ void carry(const Keys& keys, int warp_tile) const;
  __device__ void take_carried(Keys& keys, int warp_tile) const;
  __device__ uint4* carried(int warp_tile, int head) const;
  __device__ void store_head(Tile<kWidth> to, int warp_tile, int column,
                             const Sums (&sums)[kHeadEights]) const;

  __device__ void read_as_queries(uint32_t (&dquery)[P::kTilesOfWarp][kEights][2]);
  __device__ void read_as_queries(int warp_tile, int head, Sums (&dquery)[kHeadEights]);
  __device__ void add_own_keys(Queries& queries, int warp_tile, const KeyWords& words) const;
  __device__ static float product_of_rows(const HeadRows<kHeadSize>& left, const HeadRows<kHeadSize>& right,
                                          int half);
  __device__ void store_dquery(const uint32_t (&dquery)[P::kTilesOfWarp][kEights][2]) const;

  // Steps 2 and 5. Each quarter of the warps has one of four matrices: the gradients of in_proj's thirds and
  // of out_proj, sums over the rows of a tile of gradients. A warp has 16 of the matrix's rows, which are
  // columns of that tile, and their sums, which are products with ones.

  static_assert(P::kWarps == 4 * kSixteens, "16 rows of a matrix a warp");

  __device__ int matrix() const {
    return warp_ / kSixteens;
  }
  __device__ bool has_out_proj() const {
    return matrix() == 3;
  }
  __device__ int first_of_matrix() const {
    return 16 * (warp_ % kSixteens);
  }

  __device__ void add_out_proj_sums();
  __device__ void add_in_proj_sums();
  __device__ void add_sums(Tile<kWidth> gradient, Tile<kWidth> input, int first_warp_tile);
  template <int WarpTiles>
  __device__ void start_sums(Tile<kWidth> gradient, Tile<kWidth> input, int warp_tile);
  __device__ void clear_sums();
  __device__ void write_sums();
  template <int Begin, int Size, int End>
  __device__ void clear_gaps(float* part) const;
  __device__ void write_norm_sums(float* weight, float* bias);

  const Job& job_;
  char* const shared_;
  /// Several names share a tile; see the table above.
  const Tile<kWidth> query_, dquery_, key_, x_, value_, dx1_, context_, d_attention_output_, normed1_,
      dprojected_, dkey_, own_key_, attention_output_, dvalue_, own_value_;
  const Tile<kWidth> in_proj_, out_proj_;
  float *const minus_log_, *const minus_delta_, *const inverse_;
  int* const next_keys_;
  Bf16 *const in_proj_bias_, *const norm1_weight_;
  /// The same in all lanes, as the compiler knows: where warps take part in products of a warpgroup depends
  /// on it, and else the compiler waits for each product.
  const int warp_;
  const LanePlace place_;
  const int tokens_, warp_tiles_;
  Pairs pairs_;
  Round round_;

  Sums weight_sums_[kEights];  ///< (16, D): the warp's rows of its matrix
  float column_sums_[2];       ///< of two columns of a tile, 8 apart: the lane's rows of a product with ones
  /// (16, 8): row n has the sums of dx1 in columns 8 n … 8 n + 7 for norm1's bias; row 8 + n those for its
  /// weight.
  Sums norm_sums_;
};

}  // namespace adtrain::kernels::backward_pass
