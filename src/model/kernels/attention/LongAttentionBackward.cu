#include <algorithm>
#include <cmath>

#include "base/Launch.cuh"
#include "model/kernels/attention/GroupTile.cuh"
#include "model/kernels/attention/LongAttention.h"
#include "model/kernels/attention/LongTiles.cuh"
#include "model/kernels/attention/ScoreTiles.h"
#include "model/kernels/fused/Instructions.cuh"
#include "model/kernels/fused/Tile.cuh"

/// The backward pass of attention over long sequences. A head, with dropout's scale c and m = 1 for what is
/// kept:
///
///     P = exp2(log2 e / √head size · q kᵀ − log_sum)
///     dS = P (m · dread vᵀ − delta),  delta = Σ dread · read / c
///     dq = c / √head size · dS k,  dk = c / √head size · dSᵀ q,  dv = c (m P)ᵀ dread
///
/// The first kernel finds the deltas. The second has 128 keys in a thread block, whose queries and dread pass
/// by: dk, dv, and dS, which it leaves in global memory. The third has 128 queries, whose keys and dS pass
/// by: dq, a plain product, bound by reading dS. So that dS of many heads takes no more memory than it may,
/// heads go through the second and the third kernel in groups.
///
/// dS lies as the second kernel's warps hold it, see ScoreTiles: a tile is a fragment of 16 keys as rows and
/// 16 queries as columns, 16 bytes a lane.
///
/// Shared memory for heads of 64, 67 and 16 KiB:
///
///     keys, values    (128, 64), 16 KiB each: then dk and dv, on their way out
///     queries, dread  (2, 64, 64), 16 KiB each: passing
///     log_sums, minus_deltas  (2, 64), fp32: of them
///     words           (2, 4, 64), 2 KiB: dropout's for them
///
///     keys            (2, 64, 64), 16 KiB: passing; then dq, on its way out
namespace adtrain::kernels {
namespace {

using namespace long_attention_pass;

/// Of a group of heads.
struct Job {
  HeadAttention attention;
  HeadAttentionGradients gradients;
  ScoreTiles tiles;
  int first_head;  ///< among all sequences'
  BlockOrder of_queries, of_keys;

  template <Own kOwn>
  __device__ OwnRows rows(int block) const {
    OwnRows own = (kOwn == Own::kQueries ? of_queries : of_keys).rows<kOwn>(block);
    own.number += first_head;
    own.sequence = own.number / attention.shape.heads;
    own.head = own.number % attention.shape.heads;
    return own;
  }
  /// The lane's part of a tile of dS. `number`: the head's, among all sequences'.
  __device__ uint4* dscores(int number, int queries, int keys, unsigned lane) const {
    const int64_t tile = int64_t{number - first_head} * tiles.of_head + tiles.place(queries, keys);
    return reinterpret_cast<uint4*>(gradients.dscores) + tile * kWarp + lane;
  }
};
static_assert(ScoreTiles::kBlock == kPassingRows && ScoreTiles::kSide == kStrip &&
              ScoreTiles::kElements * sizeof(Bf16) == kWarp * sizeof(uint4));

// The first kernel

constexpr int kDeltaRows = 64;  ///< of a thread block, of one head

template <int HeadSize>
__global__ void __launch_bounds__(kThreads) long_deltas_kernel(const __grid_constant__ Job job) {
  constexpr int kChunks = HeadSize / 8, kAtOnce = kThreads / kChunks;
  const BlockShape& shape = job.attention.shape;
  const int row_blocks = (shape.rows + kDeltaRows - 1) / kDeltaRows, of_rows = blockIdx.x / shape.heads;
  const int head = blockIdx.x % shape.heads, sequence = of_rows / row_blocks;
  const int first = of_rows % row_blocks * kDeltaRows + threadIdx.x / kChunks,
            column = 8 * (threadIdx.x % kChunks);
  const auto chunk = [&](const Bf16* data, int row) {
    const Bf16* from = rows_of_heads<HeadSize>(data, shape).at(sequence, row, head) + column;
    return ChunkValues::of(__ldg(reinterpret_cast<const uint4*>(from)));
  };
#pragma unroll
  for (int i = 0; i < kDeltaRows; i += kAtOnce) {
    const int row = min(first + i, shape.rows - 1);
    const float product = chunk(job.attention.read, row).product_with(chunk(job.gradients.read, row));
    const float minus_delta = -head_sum<HeadSize>(product) / job.attention.scale;
    if (column == 0 && first + i < shape.rows) {
      const int64_t number = int64_t{sequence} * shape.heads + head;
      job.gradients.minus_deltas[number * shape.rows + row] = minus_delta;
    }
  }
}

/// What the other kernels know: matrices and their sizes.
template <int HeadSize>
class LongBackward {
 protected:
  static constexpr int kSteps = HeadSize / 16, kEights = HeadSize / 8;
  static constexpr int kOwnTile = Tile<HeadSize>::bytes(kOwnRows);
  static constexpr int kPassingTile = Tile<HeadSize>::bytes(kPassingRows);

  __device__ LongBackward(const Job& job, const OwnRows& own, char* shared)
      : launch_(job),
        job_(job.attention),
        gradients_(job.gradients),
        own_(own),
        shared_(shared),
        warp_(threadIdx.x / kWarp),
        lane_(lane_anew()) {}

  __device__ Tile<HeadSize> tile_at(int bytes) const { return {reinterpret_cast<Bf16*>(shared_ + bytes)}; }
  template <class Value>
  __device__ Value* values_at(int bytes) const {
    return reinterpret_cast<Value*>(shared_ + bytes);
  }
  __device__ static float root() { return std::sqrt(static_cast<float>(HeadSize)); }
  /// `first`: the matrix's row of the thread block's first; rows in [begin, end) are stored.
  __device__ void store(const HeadMatrix<Bf16>& to, int first, int begin, int end, int strip,
                        Tile<HeadSize> tile, float scale, const Sums (&sums)[kEights]) const {
    const int row = kWarpRows * warp_ + kStrip * strip;
    store_strip(to, own_, first + row, begin, end, from_row(tile, row), sums, {scale, scale});
  }

  const Job& launch_;
  const HeadAttention& job_;
  const HeadAttentionGradients& gradients_;
  const OwnRows& own_;
  char* const shared_;
  const int warp_;
  unsigned lane_;  ///< read anew where a lane's places in tiles would take registers that others need
};

// The second kernel

template <int HeadSize, bool Dropout>
class KeysBackward : LongBackward<HeadSize> {
  using Base = LongBackward<HeadSize>;
  using Base::launch_, Base::job_, Base::own_, Base::gradients_, Base::warp_, Base::lane_, Base::kSteps;
  static constexpr int kStatistics = kPassingRows * static_cast<int>(sizeof(float));
  static constexpr int kKeys = 0, kValues = Base::kOwnTile, kPassing = 2 * Base::kOwnTile;
  static constexpr int kQueries = 0, kDread = Base::kPassingTile, kLogs = 2 * Base::kPassingTile,
                       kDeltas = kLogs + kStatistics, kWords = kDeltas + kStatistics,
                       kPassingBytes =
                           kWords + (Dropout ? kPassingWords * static_cast<int>(sizeof(uint32_t)) : 0);

 public:
  static constexpr int kBytes = kPassing + 2 * kPassingBytes;

  __device__ KeysBackward(const Job& job, const OwnRows& own, char* shared) : Base(job, own, shared) {}

  __device__ void run() {
    const int thread = thread_anew(), tokens = job_.shape.tokens;
    start_copy_rows<kOwnRows>(this->tile_at(kKeys), job_.keys, own_, own_.first, tokens, thread);
    start_copy_rows<kOwnRows>(this->tile_at(kValues), job_.values, own_, own_.first, tokens, thread);
    fetch(first_block<Own::kKeys>(job_.shape, own_));
    copies_arrived();
    __syncthreads();
    take_keys();
    meet_passing_rows<Own::kKeys>(
        job_.shape, own_, [&](int block) { fetch(block); },
        [&](int block, int step, auto diagonal) { add_queries<decltype(diagonal)::kValue>(block, step); });
#pragma unroll
    for (int strip = 0; strip < kStrips; ++strip) {
      this->store(gradients_.keys, own_.first, 0, tokens, strip, this->tile_at(kKeys),
                  job_.scale / Base::root(), dkey_[strip]);
      this->store(gradients_.values, own_.first, 0, tokens, strip, this->tile_at(kValues), job_.scale,
                  dvalue_[strip]);
    }
  }

 private:
  __device__ static int passing(int block) {
    return kPassing + block % 2 * kPassingBytes;
  }
  __device__ Tile<HeadSize> queries(int block) const {
    return this->tile_at(passing(block) + kQueries);
  }
  __device__ Tile<HeadSize> dread(int block) const {
    return this->tile_at(passing(block) + kDread);
  }
  __device__ float* log_sums(int block) const {
    return this->template values_at<float>(passing(block) + kLogs);
  }
  __device__ float* minus_deltas(int block) const {
    return this->template values_at<float>(passing(block) + kDeltas);
  }
  __device__ uint32_t* words(int block) const {
    return this->template values_at<uint32_t>(passing(block) + kWords);
  }
  __device__ HeadMatrix<const Bf16> dread_rows() const {
    return rows_of_heads<HeadSize>(gradients_.read, job_.shape);
  }
  /// Of the first row of the head, among all rows' log_sums and deltas.
  __device__ int64_t first_sum() const {
    return int64_t{own_.number} * job_.shape.rows;
  }
  /// exp2 of a product of query and key, minus the query's log_sum.
  __device__ static float weight_of(float product, float minus_log) {
    return exp2_of(fmaf(product, kLog2E / Base::root(), minus_log));
  }
  /// Queries that do not exist have no log_sum and no dread, so that they add nothing.
  __device__ void fetch(int block) const {
    static_assert(kThreads == 2 * kPassingRows);
    const int first = row_of(job_.shape, kPassingRows * block), rows = job_.shape.rows,
              thread = thread_anew();
    start_copy_rows<kPassingRows>(queries(block), job_.queries, own_, first, rows, thread);
    start_copy_rows<kPassingRows>(dread(block), dread_rows(), own_, first, rows, thread);
    const int place = thread % kPassingRows, row = first + place;
    float* const to = thread < kPassingRows ? log_sums(block) : minus_deltas(block);
    const float* const from = thread < kPassingRows ? job_.log_sums : gradients_.minus_deltas;
    start_copy_or_clear(to + place, from + first_sum() + row, row >= 0 && row < rows);
    if constexpr (Dropout)
      start_copy_words<kPassingRows>(words(block), job_, own_, first, own_.first, thread);
  }

  __device__ void take_keys() {
#pragma unroll
    for (int strip = 0; strip < kStrips; ++strip) {
#pragma unroll
      for (int step = 0; step < kSteps; ++step) {
        key_[strip][step] = left_of(this->tile_at(kKeys), first_of(strip), 16 * step, lane_);
      }
#pragma unroll
      for (int i = 0; i < Base::kEights; ++i) dkey_[strip][i] = dvalue_[strip][i] = no_sums();
    }
  }
  __device__ int first_of(int strip) const {
    return kWarpRows * warp_ + kStrip * strip;
  }

  /// What 32 queries add to dk and dv. Scores lie with keys as rows.
  template <bool Diagonal>
  __device__ void add_queries(int block, int step) {
#pragma unroll 1
    for (int group = 0; group < kStepRows / 16; ++group) {
      lane_ = lane_anew();
      const int row = kStepRows * step + 16 * group;
      LeftFragment weights[kStrips], kept_weights[kStrips];
      weigh<Diagonal>(weights, block, row, group);
#pragma unroll
      for (int strip = 0; strip < kStrips; ++strip) kept_weights[strip] = weights[strip];
      if constexpr (Dropout) {
        for_masks(block, row,
                  [&](int strip, int part, uint32_t mask) { kept_weights[strip].part[part] &= mask; });
      }
      add_rows(dvalue_, kept_weights, dread(block), row);

      LeftFragment dscores[kStrips];
      find_dweights(dscores, block, row);
#pragma unroll
      for (int strip = 0; strip < kStrips; ++strip)
        dscores[strip] = multiplied(weights[strip], dscores[strip]);
      add_rows(dkey_, dscores, queries(block), row);
      store_dscores<Diagonal>(dscores, block, row);
    }
  }
  /// take(strip, part, mask) for the elements of fragments that are kept. Bits are fetched from shared memory
  /// each time, for want of registers.
  template <class Take>
  __device__ void for_masks(int block, int row, Take&& take) const {
    const LanePlace place = lane_place(lane_);
    const uint32_t* const of_query = words(block) + kPassingRows * warp_ + row + place.column;
#pragma unroll
    for (int eight = 0; eight < 2; ++eight) {
      const uint2 kept = *reinterpret_cast<const uint2*>(of_query + 8 * eight);
      const uint32_t first = kept.x << (7 - place.row), second = kept.y << (7 - place.row);
#pragma unroll
      for (int i = 0; i < 2 * kStrips; ++i) take(i / 2, 2 * eight + i % 2, pair_mask(first, second, i));
    }
  }

  /// P, before dropout.
  template <bool Diagonal>
  __device__ void weigh(LeftFragment (&weights)[kStrips], int block, int row, int group) const {
    const LanePlace place = lane_place(lane_);
    Sums scores[kStrips][2];
#pragma unroll
    for (auto& of_strip : scores) of_strip[0] = of_strip[1] = no_sums();
#pragma unroll
    for (int step = 0; step < kSteps; ++step) {
      const RightFragments right = right_of_transposed(queries(block), row, 16 * step, lane_);
#pragma unroll
      for (int strip = 0; strip < kStrips; ++strip) {
        multiply_add(scores[strip][0], scores[strip][1], key_[strip][step], right);
      }
    }
#pragma unroll
    for (int eight = 0; eight < 2; ++eight) {
      const float2 log = *reinterpret_cast<const float2*>(log_sums(block) + row + 8 * eight + place.column);
#pragma unroll
      for (int i = 0; i < 2 * kStrips; ++i) {
        const int strip = i / 2, half = i % 2;
        const float* score = scores[strip][eight].value + 2 * half;
        float weight[2] = {weight_of(score[0], -log.x), weight_of(score[1], -log.y)};
        if constexpr (Diagonal) {
          const int behind = 16 * (group - strip) + 8 * (eight - half) + place.column - place.row;
          if (behind < 0) weight[0] = 0.0f;
          if (behind + 1 < 0) weight[1] = 0.0f;
        }
        weights[strip].part[2 * eight + half] = packed(weight[0], weight[1]);
      }
    }
  }

  /// m · dread vᵀ − delta.
  __device__ void find_dweights(LeftFragment (&found)[kStrips], int block, int row) const {
    const float* const of_query = minus_deltas(block) + row + lane_place(lane_).column;
    Sums dweights[kStrips][2];
    uint32_t dropped[2];
#pragma unroll
    for (int eight = 0; eight < 2; ++eight) {
      const Sums start = sums_from(of_query + 8 * eight);
      dropped[eight] = packed(start.value[0], start.value[1]);
#pragma unroll
      for (auto& of_strip : dweights) of_strip[eight] = start;
    }
#pragma unroll
    for (int step = 0; step < kSteps; ++step) {
      const RightFragments right = right_of_transposed(dread(block), row, 16 * step, lane_);
#pragma unroll
      for (int strip = 0; strip < kStrips; ++strip) {
        const LeftFragment value = left_of(this->tile_at(kValues), first_of(strip), 16 * step, lane_);
        multiply_add(dweights[strip][0], dweights[strip][1], value, right);
      }
    }
#pragma unroll
    for (int eight = 0; eight < 2; ++eight) {
#pragma unroll
      for (int i = 0; i < 2 * kStrips; ++i) {
        const int strip = i / 2, half = i % 2;
        const float* dweight = dweights[strip][eight].value + 2 * half;
        found[strip].part[2 * eight + half] = packed(dweight[0], dweight[1]);
      }
    }
    if constexpr (Dropout) {
      for_masks(block, row, [&](int strip, int part, uint32_t mask) {
        uint32_t& pair = found[strip].part[part];
        pair = (pair & mask) | (dropped[part / 2] & ~mask);
      });
    }
  }

  /// For the third kernel.
  template <bool Diagonal>
  __device__ void store_dscores(const LeftFragment (&dscores)[kStrips], int block, int row) const {
    const int query = (kPassingRows * block + row) / kStrip, key = (own_.first + first_of(0)) / kStrip;
    uint4* const to = launch_.dscores(own_.number, query, key, lane_anew());
#pragma unroll
    for (int strip = 0; strip < kStrips; ++strip) {
      const uint32_t(&part)[4] = dscores[strip].part;
      if (!Diagonal || key + strip <= query) to[kWarp * strip] = {part[0], part[1], part[2], part[3]};
    }
  }

  /// sums += left · 16 rows.
  __device__ void add_rows(Sums (&sums)[kStrips][Base::kEights], const LeftFragment (&left)[kStrips],
                           Tile<HeadSize> tile, int row) const {
#pragma unroll
    for (int i = 0; i < kSteps; ++i) {
      const RightFragments right = right_of(tile, row, 16 * i, lane_);
#pragma unroll
      for (int strip = 0; strip < kStrips; ++strip) {
        multiply_add(sums[strip][2 * i], sums[strip][2 * i + 1], left[strip], right);
      }
    }
  }

  LeftFragment key_[kStrips][kSteps];
  Sums dkey_[kStrips][Base::kEights], dvalue_[kStrips][Base::kEights];
};

// The third kernel

template <int HeadSize>
class QueriesBackward : LongBackward<HeadSize> {
  using Base = LongBackward<HeadSize>;
  using Base::launch_, Base::job_, Base::own_, Base::gradients_, Base::warp_, Base::lane_;
  static constexpr int kTiles = kPassingRows / kStrip;  ///< of keys that pass

 public:
  static constexpr int kBytes = 2 * Base::kPassingTile;
  static_assert(kBytes >= Base::kOwnTile);

  __device__ QueriesBackward(const Job& job, const OwnRows& own, char* shared) : Base(job, own, shared) {}

  __device__ void run() {
    const int first = row_of(job_.shape, own_.first);
    const int end = first + kOwnRows <= 0 ? 0 : min(own_.first + kOwnRows, job_.shape.tokens);
    start();
    fetch(0, end);
#pragma unroll 1
    for (int block = 0; kPassingRows * block < end; ++block) {
      copies_arrived();
      __syncthreads();
      fetch(block + 1, end);
      add_keys(block);
    }
    __syncthreads();
#pragma unroll
    for (int strip = 0; strip < kStrips; ++strip) {
      this->store(gradients_.queries, first, -gradients_.rows_before, job_.shape.rows, strip,
                  this->tile_at(0), job_.scale / Base::root(), dquery_[strip]);
    }
  }

 private:
  __device__ void start() {
    first_ = own_.first / kStrip + kStrips * warp_;
    dscores_ = launch_.dscores(own_.number, first_, 0, lane_);
#pragma unroll
    for (int strip = 0; strip < kStrips; ++strip) {
      end_[strip] = launch_.tiles.has(first_ + strip, 0) ? first_ + strip + 1 : 0;
#pragma unroll
      for (int tile = 0; tile < kTiles; ++tile) next_[strip][tile] = dscores(strip, tile);
#pragma unroll
      for (Sums& sums : dquery_[strip]) sums = no_sums();
    }
  }

  __device__ Tile<HeadSize> keys(int block) const {
    return this->tile_at(block % 2 * Base::kPassingTile);
  }
  /// `end`: of the keys that are read.
  __device__ void fetch(int block, int end) const {
    const int first = kPassingRows * block;
    if (first >= end) return;
    start_copy_rows<kPassingRows>(keys(block), job_.keys, own_, first, job_.shape.tokens, thread_anew());
  }
  /// Read once, so that they need not stay in a cache. `keys`: a strip, as below.
  __device__ LeftFragment dscores(int strip, int keys) const {
    if (keys >= end_[strip]) return {};
    const uint4 part = __ldcs(dscores_ + (strip * (first_ + 1) + keys) * kWarp);
    return {{part.x, part.y, part.z, part.w}};
  }

  /// What 64 keys add to dq. Behind each 16 of them, dS of those that are 64 further on is asked for.
  __device__ void add_keys(int block) {
    lane_ = lane_anew();
#pragma unroll
    for (int tile = 0; tile < kTiles; ++tile) {
      LeftFragment dscores_now[kStrips];
#pragma unroll
      for (int strip = 0; strip < kStrips; ++strip) {
        dscores_now[strip] = transposed(next_[strip][tile]);
        next_[strip][tile] = dscores(strip, kTiles * (block + 1) + tile);
      }
      if (kTiles * block + tile >= max(end_[0], end_[1])) continue;
#pragma unroll
      for (int i = 0; i < Base::kSteps; ++i) {
        const RightFragments right = right_of(keys(block), kStrip * tile, 16 * i, lane_);
#pragma unroll
        for (int strip = 0; strip < kStrips; ++strip) {
          multiply_add(dquery_[strip][2 * i], dquery_[strip][2 * i + 1], dscores_now[strip], right);
        }
      }
    }
  }

  int first_;             ///< strip of queries
  int end_[kStrips];      ///< of the strips of keys that a strip's queries read
  const uint4* dscores_;  ///< of the first strip and the first keys
  LeftFragment next_[kStrips][kTiles];
  Sums dquery_[kStrips][Base::kEights];
};

template <int HeadSize, bool Dropout>
__global__ void __launch_bounds__(kThreads, 2) long_keys_backward_kernel(const __grid_constant__ Job job) {
  __shared__ OwnRows own;
  if (threadIdx.x == 0) own = job.rows<Own::kKeys>(blockIdx.x);
  __syncthreads();
  KeysBackward<HeadSize, Dropout>(job, own, dynamic_shared_memory()).run();
}

template <int HeadSize>
__global__ void __launch_bounds__(kThreads, 4) long_queries_backward_kernel(const __grid_constant__ Job job) {
  __shared__ OwnRows own;
  if (threadIdx.x == 0) own = job.rows<Own::kQueries>(blockIdx.x);
  __syncthreads();
  QueriesBackward<HeadSize>(job, own, dynamic_shared_memory()).run();
}

template <int HeadSize>
void launch_deltas(const Job& job, cudaStream_t stream) {
  const BlockShape& shape = job.attention.shape;
  const int row_blocks = (shape.rows + kDeltaRows - 1) / kDeltaRows;
  gpu::launch("long_deltas_kernel", long_deltas_kernel<HeadSize>, shape.sequences * row_blocks * shape.heads,
              kThreads, 0, stream, job);
}

template <int HeadSize, bool Dropout>
void launch_group(const Job& job, cudaStream_t stream) {
  gpu::launch("long_keys_backward_kernel", long_keys_backward_kernel<HeadSize, Dropout>, job.of_keys.blocks(),
              kThreads, KeysBackward<HeadSize, Dropout>::kBytes, stream, job);
  gpu::launch("long_queries_backward_kernel", long_queries_backward_kernel<HeadSize>, job.of_queries.blocks(),
              kThreads, QueriesBackward<HeadSize>::kBytes, stream, job);
}

template <int HeadSize>
void launch(Job job, cudaStream_t stream) {
  const BlockShape& shape = job.attention.shape;
  const int heads = shape.sequences * shape.heads, together = job.tiles.heads_together(shape);
  launch_deltas<HeadSize>(job, stream);
  for (; job.first_head < heads; job.first_head += together) {
    job.of_queries.all_heads = job.of_keys.all_heads = std::min(together, heads - job.first_head);
    if (job.attention.keep != nullptr) {
      launch_group<HeadSize, true>(job, stream);
    } else {
      launch_group<HeadSize, false>(job, stream);
    }
  }
}

}  // namespace

int64_t long_attention_dscores(const HeadAttention& attention) {
  if (!attention.is_long()) return 0;
  const ScoreTiles tiles = ScoreTiles::of(attention.shape);
  return int64_t{tiles.heads_together(attention.shape)} * tiles.of_head * ScoreTiles::kElements;
}

void long_attention_backward(const HeadAttention& attention, const HeadAttentionGradients& gradients,
                             cudaStream_t stream) {
  const BlockShape& shape = attention.shape;
  const int first_query = shape.tokens - shape.rows - gradients.rows_before;
  const Job job = {attention,
                   gradients,
                   ScoreTiles::of(shape),
                   /*first_head=*/0,
                   BlockOrder::of(shape, first_query),
                   BlockOrder::of(shape, 0)};
  if (shape.width / shape.heads == 32) return launch<32>(job, stream);
  return launch<64>(job, stream);
}

}  // namespace adtrain::kernels
