#include <cmath>

#include "base/Launch.cuh"
#include "kernels/attention/GroupTile.cuh"
#include "kernels/attention/streaming/StreamingAttention.h"
#include "kernels/attention/streaming/StreamingTiles.cuh"
#include "kernels/primitives/Instructions.cuh"
#include "kernels/primitives/KeptPairs.cuh"
#include "kernels/primitives/Tile.cuh"
#include "kernels/primitives/WarpgroupProducts.cuh"

/// The forward pass of attention over long sequences. A thread block owns 64 queries of a head; their keys
/// and values stream by, the nearest first.
///
/// Weights are exp2(score − m). m = 0 suffices where a row's weights sum to between 2^-100 and 2^100, which
/// is known after the last key; in fp16 to 2^-8 and more, as smaller weights lose digits there, and none that
/// is greater than 65504, which becomes infinite and the sum with it. Where a row of the thread block does
/// not satisfy this, the block reads the keys twice more: once for each row's greatest score, which becomes
/// m, and once with this m. So the usual pass needs no maximum.
///
/// With ALiBi a row's weights further back are less than exp2(|query| · |longest key| − slope · distance −
/// m). Where that is less than 2^-26 of the weights that have been read, for each row of the block, the block
/// has read enough. A kernel before this one finds the longest key of each head.
///
/// Of packed and padded sequences a thread block ends at the stage in which the segment of its first query
/// begins, and hides the keys before each query's own; most stages lie in one segment, and hide nothing.
///
/// Shared memory, 42 KiB for heads of 64:
///
///     queries       (64, 64), 8 KiB: until they are in registers; at the end the output, to be stored
///     keys, values  (2, 64, 64), 16 KiB each: streamed
///     arrivals      32 B: barriers of copies
///     words         (2, 2, 64), 1 KiB: dropout words of the streamed keys
///     bounds        (64), 256 B: of packed and padded sequences, where the queries' segments begin
///     up to 1 KiB before these, so that tiles begin where the swizzle does
namespace adtrain::kernels {
namespace {

using namespace streaming_attention_pass;

constexpr int kBlocksTogether = 4;  ///< thread blocks on a multiprocessor
static_assert(kOwnRows == AlibiReach::kReachRows);

struct Job {
  MultiheadAttention attention;
  BlockOrder order;
  TensorMap queries, keys, values;
};

/// The work of one thread in a launch.
template <class Short, int HeadSize, bool Dropout, bool Alibi, bool Segmented>
class StreamingQueries {
  static constexpr int kSteps = HeadSize / 16, kEights = HeadSize / 8;
  static constexpr int kOwnTile = Tile<HeadSize>::bytes(kOwnRows),
                       kPassingTile = Tile<HeadSize>::bytes(kPassingRows),
                       kWordBytes = Dropout ? kThreads * static_cast<int>(sizeof(uint32_t)) : 0;
  static constexpr int kKeys = kOwnTile, kValues = kKeys + kStages * kPassingTile,
                       kArrivals = kValues + kStages * kPassingTile, kWords = kArrivals + Arrivals::kBytes,
                       kBounds = kWords + kStages * kWordBytes;
  using Bounds = SegmentBounds<Bound::kFirst>;

 public:
  static constexpr int kBytes = kBounds + (Segmented ? Bounds::kBytes : 0) + kTileAlignment;

  /// `own` is in shared memory, to save registers.
  __device__ StreamingQueries(const Job& job, const OwnRows& own, char* shared)
      : job_(job.attention),
        own_queries_(job.queries),
        own_(own),
        shared_(shared),
        warp_(threadIdx.x / kWarp),
        lane_(lane_anew()),
        passing_(job.keys, job.values, own, 0, arrivals()),
        slope_(Alibi ? alibi_slope(own.head, job.attention.shape.heads) : 0.0f) {}

  __device__ void run() {
    arrivals().begin([&](TransferBarrier& arrived) {
      start_copy_rows(queries(), own_queries_, own_, row_of(job_.shape, own_.first), arrived);
    });
    fetch(own_.end - 1);
    if constexpr (Segmented) Bounds::copy(bounds(), job_, own_);
    __syncthreads();
    arrivals().own_rows.await(0);
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
  __device__ Tile<HeadSize> tile_at(int bytes) const {
    return {reinterpret_cast<Bf16*>(shared_ + bytes)};
  }
  __device__ Tile<HeadSize> queries() const {
    return tile_at(0);
  }
  __device__ Arrivals& arrivals() const {
    return *reinterpret_cast<Arrivals*>(shared_ + kArrivals);
  }

  // Streamed keys and values

  __device__ Tile<HeadSize> keys(int block) const {
    return tile_at(kKeys + block % kStages * kPassingTile);
  }
  __device__ Tile<HeadSize> values(int block) const {
    return tile_at(kValues + block % kStages * kPassingTile);
  }
  __device__ uint32_t* words(int block) const {
    return reinterpret_cast<uint32_t*>(shared_ + kWords + block % kStages * kWordBytes);
  }
  /// Of packed and padded sequences: where the segments of the thread block's queries begin.
  __device__ int* bounds() const {
    return reinterpret_cast<int*>(shared_ + kBounds);
  }
  __device__ void fetch(int block) const {
    passing_.start_copy(block, keys(block), values(block));
    if constexpr (Dropout) {
      start_copy_words(words(block), job_, own_, row_of(job_.shape, own_.first), kPassingRows * block);
    }
  }

  /// Goes through the keys, away from the queries: take(block, diagonal) for the stages that are read;
  /// `diagonal` is a FlagOf. The nearest stage must already have been fetched. `Ends`: before a stage
  /// that no thread of the block reads by reads_stage(). Returns the last stage that was read.
  template <bool Ends, class Take>
  __device__ int for_keys(Take&& take) {
    int block = own_.end - 1;
#pragma unroll 1
    for (; block >= own_.begin; --block) {
      copies_arrived();
      passing_.await(block);
      if constexpr (Ends) {
        if (__syncthreads_or(reads_stage(block)) == 0) break;
      } else {
        __syncthreads();
      }
      if (block > own_.begin) fetch(block - 1);
      if (block == diagonal_stage(own_)) {
        take(block, FlagOf<true>());
      } else {
        take(block, FlagOf<false>());
      }
    }
    return block + 1;
  }

  // Queries

  __device__ void take_queries() {
#pragma unroll
    for (int step = 0; step < kSteps; ++step) {
      query_[step] = left_of(queries(), kWarpTile * warp_, 16 * step, lane_);
    }
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      start_[half] = Alibi ? -slope_ * place_of(half) : 0.0f;
      if constexpr (Alibi) greatest_weight_[half] = greatest_weight(half);
    }
  }
  /// The place among the thread block's rows of the lane's row or, half = 1, the one 8 further down.
  __device__ int place_of(int half) const {
    return kWarpTile * warp_ + 8 * half + lane_place(lane_).row;
  }
  /// The binary logarithm of 2^26 times the greatest weight that a key can have for the row, without its
  /// distance and m.
  __device__ float greatest_weight(int half) const {
    float squares = 0.0f;
#pragma unroll
    for (const LeftFragment& part : query_) {
      const float2 low = unpacked<Short>(part.part[half]), high = unpacked<Short>(part.part[2 + half]);
      squares += low.x * low.x + low.y * low.y + high.x * high.x + high.y * high.y;
    }
    return kNegligible + std::sqrt(quad_sum(squares)) * job_.alibi.longest_keys[own_.number] * factor();
  }
  /// Whether a key of the stage, or of those before it, can weigh anything for one of the lane's rows.
  __device__ bool reads_stage(int block) const {
    const float nearest = slope_ * (kPassingRows * (block + 1) - 1 - own_.first);
    bool reads = false;
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const float most = exp2_of(greatest_weight_[half] + start_[half] + nearest);
      reads = reads || !(total(half) >= most);  // where either is NaN, too
    }
    return reads;
  }
  /// The factor that turns products into exponents of 2.
  __device__ static float factor() {
    return kLog2E / std::sqrt(static_cast<float>(HeadSize));
  }
  /// ALiBi's part of the exponent that depends on the key, for the lane's first key of a stage. What depends
  /// on the query is in `start_`.
  __device__ float first_bias(int block) const {
    return Alibi ? slope_ * (kPassingRows * block + lane_place(lane_).column - own_.first) : 0.0f;
  }
  /// Of the `key`-th key after that one.
  __device__ float bias_of(float first_bias, int key) const {
    return Alibi ? fmaf(slope_, static_cast<float>(key), first_bias) : first_bias;
  }

  /// The products of the queries with the stage's keys; −∞ for keys that a row does not read.
  template <bool Diagonal>
  __device__ __forceinline__ void score(PassingSums& scores, int block) {
#pragma unroll
    for (Sums& sums : scores) sums = no_sums();
    take_sums(scores);
    begin_products();
#pragma unroll
    for (int step = 0; step < kSteps; ++step) {
      start_product_with_rows<Short>(scores, query_[step], keys(block), 16 * step);
    }
    close_products();
    products_arrived<0>();
    take_sums(scores);
    hold(query_);
    if constexpr (Segmented) hide_other_segments(scores, block);
    if constexpr (!Diagonal) return;
    const int own = place_of(0) % kPassingRows - lane_place(lane_).column;
#pragma unroll
    for (int i = 0; i < 4 * kPassingEights; ++i) {
      const int key = i / 4 * 8 + i % 2, half = i / 2 % 2;
      if (key > own + 8 * half) scores[i / 4].value[i % 4] = -INFINITY;
    }
  }
  /// Of stages that not all of the thread block's queries read whole.
  __device__ __forceinline__ void hide_other_segments(PassingSums& scores, int block) const {
    const int* const first = bounds();
    if (first[kOwnRows - 1] <= kPassingRows * block) return;
    const int column = kPassingRows * block + lane_place(lane_).column;
    hide_before(scores, {first[place_of(0)] - column, first[place_of(1)] - column}, -INFINITY);
  }

  __device__ void attend() {
    totals_ = no_sums();
#pragma unroll
    for (Sums& sums : attention_output_) sums = no_sums();
    const int last =
        for_keys<Alibi>([&](int block, auto diagonal) { read_keys<decltype(diagonal)::kValue>(block); });
    if constexpr (Alibi) {
      if (threadIdx.x == 0) *first_key(job_, own_, own_.first) = kPassingRows * last;
    }
  }

  /// Adds a stage of keys: their weights to the totals, and the weighted values to the output.
  template <bool Diagonal>
  __device__ __forceinline__ void read_keys(int block) {
    PassingSums scores;
    score<Diagonal>(scores, block);
    PassingFragments weights;
    weigh(weights, scores, block);
    take_sums(attention_output_);
    begin_products();
#pragma unroll
    for (int step = 0; step < kPassingSteps; ++step) {
      start_product_over_rows<Short>(attention_output_, weights[step], values(block), 16 * step);
    }
    close_products();
    products_arrived<0>();
    take_sums(attention_output_);
    hold(weights);
  }

  /// Turns scores into weights, adds these to the totals and drops some.
  __device__ __forceinline__ void weigh(PassingFragments& weights, PassingSums& scores, int block) {
    const float bias = first_bias(block), first[2] = {start_[0] + bias, start_[1] + bias};
#pragma unroll
    for (int i = 0; i < 4 * kPassingEights; ++i) {
      const int key = i / 4 * 8 + i % 2, half = i / 2 % 2;
      float& value = scores[i / 4].value[i % 4];
      value = exp2_of(fmaf(value, factor(), bias_of(first[half], key)));
    }
#pragma unroll
    for (int step = 0; step < kPassingSteps; ++step) {
      weights[step] = as_left<Short>(scores[2 * step], scores[2 * step + 1]);
      // Rounded as for the product, so that they sum up to 1.
      multiply_add<Short>(totals_, weights[step], kTwoOnes<Short>, kTwoOnes<Short>);
    }
    if constexpr (Dropout) {
      const uint32_t* const of_row = words(block) + kWarpTile * warp_ + lane_place(lane_).row;
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        const int word = i / 2, half = i % 2;
        const KeptPairs kept(of_row[kOwnRows * word + 8 * half], lane_);
#pragma unroll
        for (int eight = 0; eight < 4; ++eight) {
          uint32_t& pair = weights[2 * word + eight / 2].part[2 * (eight % 2) + half];
          pair = kept.kept(pair, eight);
        }
      }
    }
  }

  /// The sum of the weights of the lane's row or, half = 1, the one 8 further down.
  __device__ float total(int half) const {
    return totals_.value[2 * half];
  }
  __device__ bool in_range() const {
    constexpr float kMost = 0x1p100f, kLeast = std::is_same_v<Short, __half> ? 0x1p-8f : 0x1p-100f;
    return total(0) > kLeast && total(0) < kMost && total(1) > kLeast && total(1) < kMost;
  }

  /// Finds each row's greatest score. On return, the copy of the nearest stage is in flight.
  __device__ void start_from_greatest() {
    float greatest[2] = {-INFINITY, -INFINITY};
    fetch(own_.end - 1);
    for_keys<false>([&](int block, auto diagonal) {
      PassingSums scores;
      score<decltype(diagonal)::kValue>(scores, block);
      const float bias = first_bias(block);
#pragma unroll
      for (int i = 0; i < 4 * kPassingEights; ++i) {
        const int key = i / 4 * 8 + i % 2, side = i / 2 % 2;
        greatest[side] =
            fmaxf(greatest[side], fmaf(scores[i / 4].value[i % 4], factor(), bias_of(bias, key)));
      }
    });
    start_[0] = -quad_max(greatest[0]);
    start_[1] = -quad_max(greatest[1]);
    __syncthreads();
    fetch(own_.end - 1);
  }

  __device__ void store() const {
    const LanePlace place = lane_place(lane_);
    const HeadMatrix<Bf16> to = output_rows<HeadSize>(job_.attention_output, job_);
    const int row = row_of(job_.shape, own_.first + kWarpTile * warp_);
    float share[2];
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const int own = row + place.row + 8 * half;
      if (place.column == 0 && own >= 0 && own < job_.shape.rows) {
        job_.lse[int64_t{own_.number} * job_.around.rows + own] =
            __log2f(total(half)) - start_[half] - (Alibi ? slope_ * place_of(half) : 0.0f);
      }
      share[half] = __fdividef(Dropout ? job_.scale : 1.0f, total(half));
    }
    store_warp_tile<Short>(to, own_, row, 0, job_.shape.rows, from_row(queries(), kWarpTile * warp_),
                           attention_output_, share);
  }

  const MultiheadAttention& job_;
  const TensorMap& own_queries_;
  const OwnRows& own_;
  char* const shared_;
  const int warp_;
  const unsigned lane_;
  PassingRows<HeadSize> passing_;
  LeftFragment query_[kSteps];
  const float slope_;  ///< ALiBi's, of exponents of 2
  float start_[2];     ///< −m of the lane's rows, and ALiBi's part that depends on the row
  float greatest_weight_[2];
  Sums totals_;  ///< of weights: their product with ones, whose columns are all equal
  Sums attention_output_[kEights];
};

template <class Short, int HeadSize, bool Dropout, bool Alibi, bool Segmented>
__global__ void __launch_bounds__(kThreads, kBlocksTogether)
    streaming_attention_kernel(const __grid_constant__ Job job) {
  __shared__ OwnRows own;
  if (threadIdx.x == 0) {
    const MultiheadAttention& attention = job.attention;
    own = job.order.rows<Own::kQueries>(blockIdx.x, attention.shape);
    if constexpr (Segmented) {
      own.begin = SegmentBounds<Bound::kFirst>::of(attention, own, 0) / kPassingRows;
    }
  }
  __syncthreads();
  StreamingQueries<Short, HeadSize, Dropout, Alibi, Segmented>(job, own, shared_memory_for_tiles()).run();
}

/// A thread block finds the longest key of a head.
template <class Short, int HeadSize>
__global__ void __launch_bounds__(kThreads) streaming_longest_keys_kernel(const __grid_constant__ Job job) {
  const MultiheadAttention& attention = job.attention;
  const int heads = attention.shape.heads;
  const float longest = longest_row<Short, HeadSize>(attention.keys, blockIdx.x / heads, blockIdx.x % heads,
                                                     attention.shape.tokens);
  if (threadIdx.x == 0) attention.alibi.longest_keys[blockIdx.x] = longest;
}

template <class Short, int HeadSize, bool Dropout, bool Alibi, bool Segmented>
void launch(const Job& job, cudaStream_t stream) {
  if constexpr (Alibi) {
    const BlockShape& shape = job.attention.shape;
    gpu::launch("streaming_longest_keys_kernel", streaming_longest_keys_kernel<Short, HeadSize>,
                shape.sequences * shape.heads, kThreads, 0, stream, job);
  }
  gpu::launch("streaming_attention_kernel",
              streaming_attention_kernel<Short, HeadSize, Dropout, Alibi, Segmented>, job.order.blocks(),
              kThreads, StreamingQueries<Short, HeadSize, Dropout, Alibi, Segmented>::kBytes, stream, job);
}

template <class Short, int HeadSize>
void launch(const MultiheadAttention& attention, cudaStream_t stream) {
  const BlockShape& shape = attention.shape;
  const Job job = {with_rows_around(attention), BlockOrder::of(shape, shape.tokens - shape.rows),
                   map_of<HeadSize>(attention.queries, shape, shape.rows),
                   map_of<HeadSize>(attention.keys, shape, shape.tokens),
                   map_of<HeadSize>(attention.values, shape, shape.tokens)};
  with_flags(job.attention, [&](auto dropout, auto alibi, auto segmented) {
    launch<Short, HeadSize, decltype(dropout)::kValue, decltype(alibi)::kValue, decltype(segmented)::kValue>(
        job, stream);
  });
}

}  // namespace

void streaming_attention(const MultiheadAttention& attention, cudaStream_t stream) {
  with_kind(attention, [&](auto type, auto head_size) {
    launch<decltype(type), decltype(head_size)::value>(attention, stream);
  });
}

}  // namespace adtrain::kernels
