#include <cmath>

#include "base/Launch.cuh"
#include "kernels/attention/GroupTile.cuh"
#include "kernels/attention/streaming/StreamingAttention.h"
#include "kernels/attention/streaming/StreamingTiles.cuh"
#include "kernels/primitives/Instructions.cuh"
#include "kernels/primitives/KeptPairs.cuh"
#include "kernels/primitives/Tile.cuh"

/// The forward pass of attention over long sequences. A thread block owns 128 queries of a head; their keys
/// and values stream by, the nearest first.
///
/// Weights are exp2(score − m). m = 0 suffices where a row's weights sum to between 2^-100 and 2^100, which
/// is known after the last key. Where a row of the thread block does not satisfy this, the block reads the
/// keys twice more: once for each row's greatest score, which becomes m, and once with this m. So the usual
/// pass needs no maximum.
///
/// With ALiBi a row's weights further back are less than exp2(|query| · |longest key| − slope · distance −
/// m). Where that is less than 2^-26 of the weights that have been read, for each row of the block, the block
/// has read enough. A kernel before this one finds the longest key of each head.
///
/// Shared memory, 50 KiB for heads of 64:
///
///     queries       (128, 64), 16 KiB: until they are in registers; at the end the output, to be stored
///     keys, values  (2, 64, 64), 16 KiB each: streamed
///     words         (2, 2, 128), 2 KiB: dropout words of the streamed keys
namespace adtrain::kernels {
namespace {

using namespace streaming_attention_pass;

struct Job {
  MultiheadAttention attention;
  BlockOrder order;
};

/// The work of one thread in a launch.
template <int HeadSize, bool Dropout, bool Alibi>
class StreamingQueries {
  static constexpr int kSteps = HeadSize / 16, kEights = HeadSize / 8;
  static constexpr int kKeys = 0, kValues = Tile<HeadSize>::bytes(kPassingRows), kWords = 2 * kValues;
  static constexpr int kPassingBytes =
      kWords + (Dropout ? kPassingWords * static_cast<int>(sizeof(uint32_t)) : 0);

 public:
  static constexpr int kBytes = Tile<HeadSize>::bytes(kOwnRows) + 2 * kPassingBytes;

  /// `own` is in shared memory, to save registers.
  __device__ StreamingQueries(const Job& job, const OwnRows& own, char* shared)
      : job_(job.attention),
        own_(own),
        queries_{reinterpret_cast<Bf16*>(shared)},
        passing_(shared + Tile<HeadSize>::bytes(kOwnRows)),
        warp_(threadIdx.x / kWarp),
        lane_(lane_anew()),
        slope_(Alibi ? alibi_slope(own.head, job.attention.shape.heads) : 0.0f) {}

  __device__ void run() {
    start_copy_rows<kOwnRows>(queries_, job_.queries, own_, row_of(job_.shape, own_.first), job_.shape.rows,
                              thread_anew());
    fetch(nearest_stage<Own::kQueries>(own_));
    copies_arrived();
    __syncthreads();
    take_queries();
#pragma unroll 1
    for (bool exact = false;; exact = true) {
      attend();
      if (!__syncthreads_or(!exact && !in_range())) break;
      start_from_greatest();
    }
    store();
  }

 private:
  // Streamed keys and values

  __device__ char* passing(int block) const {
    return passing_ + block % 2 * kPassingBytes;
  }
  __device__ Tile<HeadSize> keys(int block) const {
    return {reinterpret_cast<Bf16*>(passing(block) + kKeys)};
  }
  __device__ Tile<HeadSize> values(int block) const {
    return {reinterpret_cast<Bf16*>(passing(block) + kValues)};
  }
  __device__ uint32_t* words(int block) const {
    return reinterpret_cast<uint32_t*>(passing(block) + kWords);
  }
  __device__ void fetch(int block) const {
    const int first = kPassingRows * block, end = job_.shape.tokens, thread = thread_anew();
    start_copy_rows<kPassingRows>(keys(block), job_.keys, own_, first, end, thread);
    start_copy_rows<kPassingRows>(values(block), job_.values, own_, first, end, thread);
    if constexpr (Dropout) {
      start_copy_words<kOwnRows>(words(block), job_, own_, row_of(job_.shape, own_.first), first, thread);
    }
  }

  /// See meet_passing_rows().
  template <class Take, class Reads = ReadsAll>
  __device__ int for_keys(Take&& take, Reads&& reads = {}) const {
    return meet_passing_rows<Own::kQueries>(
        own_, [&](int block) { fetch(block); }, take, reads);
  }

  // Queries

  __device__ void take_queries() {
#pragma unroll
    for (int warp_tile = 0; warp_tile < kWarpTiles; ++warp_tile) {
#pragma unroll
      for (int step = 0; step < kSteps; ++step) {
        query_[warp_tile][step] =
            left_of(queries_, kWarpRows * warp_ + kWarpTile * warp_tile, 16 * step, lane_);
      }
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        start_[warp_tile][half] = Alibi ? -slope_ * place_of(warp_tile, half) : 0.0f;
        if constexpr (Alibi) greatest_weight_[warp_tile][half] = greatest_weight(warp_tile, half);
      }
    }
  }
  /// The place of a row of a warp tile among the thread block's. The row is the lane's or, half = 1, the one
  /// 8 further down.
  __device__ int place_of(int warp_tile, int half) const {
    return kWarpRows * warp_ + kWarpTile * warp_tile + 8 * half + lane_place(lane_).row;
  }
  /// The binary logarithm of 2^26 times the greatest weight that a key can have for the row, without its
  /// distance and m.
  __device__ float greatest_weight(int warp_tile, int half) const {
    float squares = 0.0f;
#pragma unroll
    for (const LeftFragment& part : query_[warp_tile]) {
      const float2 low = unpacked(part.part[half]), high = unpacked(part.part[2 + half]);
      squares += low.x * low.x + low.y * low.y + high.x * high.x + high.y * high.y;
    }
    return kNegligible + std::sqrt(quad_sum(squares)) * job_.alibi.longest_keys[own_.number] * factor();
  }
  /// Whether a key of the stage, or of those before it, can weigh anything for one of the lane's rows.
  __device__ bool reads_stage(int block) const {
    const float nearest = slope_ * (kPassingRows * (block + 1) - 1 - own_.first);
    bool reads = false;
#pragma unroll
    for (int i = 0; i < 2 * kWarpTiles; ++i) {
      const int warp_tile = i / 2, half = i % 2;
      const float most = exp2_of(greatest_weight_[warp_tile][half] + start_[warp_tile][half] + nearest);
      reads = reads || !(total_[warp_tile][half] >= most);  // where either is NaN, too
    }
    return reads;
  }
  /// The factor that turns products into exponents of 2.
  __device__ static float factor() {
    return kLog2E / std::sqrt(static_cast<float>(HeadSize));
  }

  /// ALiBi's part of the exponent that depends on the key: `key` places after the first key of 16 plus the
  /// lane's column. `row`: of the first key in its stage. What depends on the query is in `start_`.
  __device__ float bias_of(int block, int row, int key) const {
    if constexpr (!Alibi) return 0.0f;
    return slope_ * (kPassingRows * block + row + lane_place(lane_).column + key - own_.first);
  }
  /// Whether a row of a warp tile (see place_of) reads a key. The key is `key` plus the lane's column in a
  /// group of 16.
  template <bool Diagonal>
  __device__ bool reads(int warp_tile, int group, int half, int key) const {
    const LanePlace place = lane_place(lane_);
    return !Diagonal || 16 * (group - warp_tile) + key + place.column <= 8 * half + place.row;
  }

  /// The products of the queries with 16 keys.
  __device__ void score(Sums (&scores)[kWarpTiles][2], int block, int row) const {
#pragma unroll
    for (auto& of_warp_tile : scores) of_warp_tile[0] = of_warp_tile[1] = no_sums();
#pragma unroll
    for (int step = 0; step < kSteps; ++step) {
      const RightFragments right = right_of_transposed(keys(block), row, 16 * step, lane_);
#pragma unroll
      for (int warp_tile = 0; warp_tile < kWarpTiles; ++warp_tile) {
        multiply_add(scores[warp_tile][0], scores[warp_tile][1], query_[warp_tile][step], right);
      }
    }
  }

  __device__ void attend() {
#pragma unroll
    for (int warp_tile = 0; warp_tile < kWarpTiles; ++warp_tile) {
      total_[warp_tile][0] = total_[warp_tile][1] = 0.0f;
#pragma unroll
      for (Sums& sums : attention_output_[warp_tile]) sums = no_sums();
    }
    const auto take = [&](int block, int step, auto diagonal) {
      read_keys<decltype(diagonal)::kValue>(block, step);
    };
    if constexpr (Alibi) {
      const int last = for_keys(take, [&](int block) { return reads_stage(block); });
      if (threadIdx.x == 0) *first_key(job_, own_, own_.first) = kPassingRows * last;
    } else {
      for_keys(take);
    }
#pragma unroll
    for (auto& of_warp_tile : total_) {
      of_warp_tile[0] = quad_sum(of_warp_tile[0]);
      of_warp_tile[1] = quad_sum(of_warp_tile[1]);
    }
  }

  /// Adds 32 keys: their weights to the totals, and the weighted values to the output.
  template <bool Diagonal>
  __device__ void read_keys(int block, int step) {
    uint32_t kept[kWarpTiles][2];
    if constexpr (Dropout) {
      const uint32_t* const of_row =
          words(block) + kOwnRows * step + kWarpRows * warp_ + lane_place(lane_).row;
#pragma unroll
      for (int i = 0; i < 2 * kWarpTiles; ++i) kept[i / 2][i % 2] = of_row[8 * i];
    }
#pragma unroll 1
    for (int group = 0; group < kStepRows / 16; ++group) {
      const int row = kStepRows * step + 16 * group;
      Sums scores[kWarpTiles][2];
      score(scores, block, row);
      LeftFragment weights[kWarpTiles];
#pragma unroll
      for (int warp_tile = 0; warp_tile < kWarpTiles; ++warp_tile) {
        weights[warp_tile] = weights_of<Diagonal>(scores[warp_tile], warp_tile, group, block, row);
#pragma unroll
        for (int part = 0; part < 4; ++part) {
          uint32_t& pair = weights[warp_tile].part[part];
          const float2 both = unpacked(pair);  // rounded as for the product, so that they sum up to 1
          total_[warp_tile][part % 2] += both.x + both.y;
          if constexpr (Dropout) {
            pair = KeptPairs(kept[warp_tile][part % 2], lane_).kept(pair, 2 * group + part / 2);
          }
        }
      }
#pragma unroll
      for (int i = 0; i < kSteps; ++i) {
        const RightFragments right = right_of(values(block), row, 16 * i, lane_);
#pragma unroll
        for (int warp_tile = 0; warp_tile < kWarpTiles; ++warp_tile) {
          multiply_add(attention_output_[warp_tile][2 * i], attention_output_[warp_tile][2 * i + 1],
                       weights[warp_tile], right);
        }
      }
    }
  }

  /// Turns scores into weights.
  template <bool Diagonal>
  __device__ LeftFragment weights_of(Sums (&scores)[2], int warp_tile, int group, int block, int row) const {
#pragma unroll
    for (int i = 0; i < 8; ++i) {
      const int half = i / 2 % 2, key = i / 4 * 8 + i % 2;
      float& value = scores[i / 4].value[i % 4];
      value = exp2_of(fmaf(value, factor(), start_[warp_tile][half] + bias_of(block, row, key)));
      if (!reads<Diagonal>(warp_tile, group, half, key)) value = 0.0f;
    }
    return as_left(scores[0], scores[1]);
  }

  __device__ bool in_range() const {
    constexpr float kMost = 0x1p100f, kLeast = 0x1p-100f;
    bool all = true;
#pragma unroll
    for (const auto& of_warp_tile : total_) {
#pragma unroll
      for (const float total : of_warp_tile) all = all && total > kLeast && total < kMost;
    }
    return all;
  }

  /// Finds each row's greatest score. On return, the copy of the nearest stage is in flight.
  __device__ void start_from_greatest() {
    float greatest[kWarpTiles][2] = {{-INFINITY, -INFINITY}, {-INFINITY, -INFINITY}};
    fetch(nearest_stage<Own::kQueries>(own_));
    for_keys([&](int block, int step, auto diagonal) {
      constexpr bool kDiagonal = decltype(diagonal)::kValue;
#pragma unroll 1
      for (int group = 0; group < kStepRows / 16; ++group) {
        const int row = kStepRows * step + 16 * group;
        Sums scores[kWarpTiles][2];
        score(scores, block, row);
#pragma unroll
        for (int i = 0; i < 8 * kWarpTiles; ++i) {
          const int warp_tile = i / 8, side = i / 2 % 2, key = i / 4 % 2 * 8 + i % 2;
          if (reads<kDiagonal>(warp_tile, group, side, key)) {
            greatest[warp_tile][side] =
                fmaxf(greatest[warp_tile][side],
                      fmaf(scores[warp_tile][i / 4 % 2].value[i % 4], factor(), bias_of(block, row, key)));
          }
        }
      }
    });
#pragma unroll
    for (int i = 0; i < 2 * kWarpTiles; ++i) start_[i / 2][i % 2] = -quad_max(greatest[i / 2][i % 2]);
    __syncthreads();
    fetch(nearest_stage<Own::kQueries>(own_));
  }

  __device__ void store() const {
    const LanePlace place = lane_place(lane_);
    const HeadMatrix<Bf16> to = rows_of_heads<HeadSize>(job_.attention_output, job_.shape);
#pragma unroll
    for (int warp_tile = 0; warp_tile < kWarpTiles; ++warp_tile) {
      const int place_in_block = kWarpRows * warp_ + kWarpTile * warp_tile,
                row = row_of(job_.shape, own_.first + place_in_block);
      float share[2];
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        const int own = row + place.row + 8 * half;
        if (place.column == 0 && own >= 0 && own < job_.shape.rows) {
          job_.lse[int64_t{own_.number} * job_.shape.rows + own] =
              __log2f(total_[warp_tile][half]) - start_[warp_tile][half] -
              (Alibi ? slope_ * place_of(warp_tile, half) : 0.0f);
        }
        share[half] = __fdividef(Dropout ? job_.scale : 1.0f, total_[warp_tile][half]);
      }
      store_warp_tile(to, own_, row, 0, job_.shape.rows, from_row(queries_, place_in_block),
                      attention_output_[warp_tile], share);
    }
  }

  const MultiheadAttention& job_;
  const OwnRows& own_;
  const Tile<HeadSize> queries_;
  char* const passing_;
  const int warp_;
  const unsigned lane_;
  LeftFragment query_[kWarpTiles][kSteps];
  const float slope_;           ///< ALiBi's, of exponents of 2
  float start_[kWarpTiles][2];  ///< −m of the lane's rows, and ALiBi's part that depends on the row
  float greatest_weight_[kWarpTiles][2];
  float total_[kWarpTiles][2];  ///< sums of weights; the lane's share until all keys are read
  Sums attention_output_[kWarpTiles][kEights];
};

template <int HeadSize, bool Dropout, bool Alibi>
__global__ void __launch_bounds__(kThreads, 3) streaming_attention_kernel(const __grid_constant__ Job job) {
  __shared__ OwnRows own;
  if (threadIdx.x == 0) own = job.order.rows<Own::kQueries>(blockIdx.x, job.attention.shape);
  __syncthreads();
  StreamingQueries<HeadSize, Dropout, Alibi>(job, own, dynamic_shared_memory()).run();
}

/// A thread block finds the longest key of a head.
template <int HeadSize>
__global__ void __launch_bounds__(kThreads) streaming_longest_keys_kernel(const __grid_constant__ Job job) {
  constexpr int kChunks = HeadSize / 8, kAtOnce = kThreads / kChunks;
  const MultiheadAttention& attention = job.attention;
  const int sequence = blockIdx.x / attention.shape.heads, head = blockIdx.x % attention.shape.heads;
  const int chunk = threadIdx.x % kChunks, tokens = attention.shape.tokens;
  float longest = 0.0f;
#pragma unroll 4
  for (int first = 0; first < tokens; first += kAtOnce) {
    const int row = min(first + static_cast<int>(threadIdx.x) / kChunks, tokens - 1);
    const Bf16* from = attention.keys.at(sequence, row, head) + 8 * chunk;
    const ChunkValues values = ChunkValues::of(__ldg(reinterpret_cast<const uint4*>(from)));
    const float square = head_sum<HeadSize>(values.product_with(values));
    longest = fmaxf(longest, square);
  }
  __shared__ float of_warps[kWarps];
  longest = std::sqrt(warp_max(longest));
  if (threadIdx.x % kWarp == 0) of_warps[threadIdx.x / kWarp] = longest;
  __syncthreads();
  if (threadIdx.x != 0) return;
#pragma unroll
  for (const float other : of_warps) longest = fmaxf(longest, other);
  attention.alibi.longest_keys[blockIdx.x] = longest;
}

template <int HeadSize, bool Dropout, bool Alibi>
void launch(const Job& job, cudaStream_t stream) {
  if constexpr (Alibi) {
    const BlockShape& shape = job.attention.shape;
    gpu::launch("streaming_longest_keys_kernel", streaming_longest_keys_kernel<HeadSize>,
                shape.sequences * shape.heads, kThreads, 0, stream, job);
  }
  gpu::launch("streaming_attention_kernel", streaming_attention_kernel<HeadSize, Dropout, Alibi>,
              job.order.blocks(), kThreads, StreamingQueries<HeadSize, Dropout, Alibi>::kBytes, stream, job);
}

template <int HeadSize>
void launch(const Job& job, cudaStream_t stream) {
  with_flags(job.attention, [&](auto dropout, auto alibi) {
    launch<HeadSize, decltype(dropout)::kValue, decltype(alibi)::kValue>(job, stream);
  });
}

}  // namespace

void streaming_attention(const MultiheadAttention& attention, cudaStream_t stream) {
  const Job job = {attention, BlockOrder::of(attention.shape, attention.shape.tokens - attention.shape.rows)};
  if (attention.shape.width / attention.shape.heads == 32) return launch<32>(job, stream);
  return launch<64>(job, stream);
}

}  // namespace adtrain::kernels
