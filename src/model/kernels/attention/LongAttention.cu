#include <cmath>

#include "base/Launch.cuh"
#include "model/kernels/attention/LongAttention.h"
#include "model/kernels/attention/LongTiles.cuh"
#include "model/kernels/fused/block_forward/DropoutBits.cuh"
#include "model/kernels/gpu/Instructions.cuh"
#include "model/kernels/gpu/Tile.cuh"

/// The forward pass of attention over long sequences. A thread block has 128 queries of a head; their keys
/// and values pass by.
///
/// Weights are exp2(score − m). m = 0 serves where a row's weights sum up to something between 2^-100 and
/// 2^100, which is known behind the last key. Where it is not so for all rows of the thread block, it reads
/// the keys again, for each row's greatest score first, which is m then. So the usual pass knows no maximum.
///
/// Shared memory, 50 KiB for heads of 64:
///
///     queries       (128, 64), 16 KiB: until they are in registers; then what was read, on its way out
///     keys, values  (2, 64, 64), 16 KiB each: passing
///     words         (2, 2, 128), 2 KiB: dropout's for them
namespace adtrain::kernels {
namespace {

using namespace long_attention_pass;
using forward_pass::KeptPairs;

struct Job {
  HeadAttention attention;
  BlockOrder order;
};

/// A thread's part in a launch.
template <int HeadSize, bool Dropout>
class LongQueries {
  static constexpr int kSteps = HeadSize / 16, kEights = HeadSize / 8;
  static constexpr int kKeys = 0, kValues = Tile<HeadSize>::bytes(kPassingRows), kWords = 2 * kValues;
  static constexpr int kPassingBytes =
      kWords + (Dropout ? kPassingWords * static_cast<int>(sizeof(uint32_t)) : 0);

 public:
  static constexpr int kBytes = Tile<HeadSize>::bytes(kOwnRows) + 2 * kPassingBytes;

  /// `own` in shared memory, where it takes no registers.
  __device__ LongQueries(const Job& job, const OwnRows& own, char* shared)
      : job_(job.attention),
        own_(own),
        queries_{reinterpret_cast<Bf16*>(shared)},
        passing_(shared + Tile<HeadSize>::bytes(kOwnRows)),
        warp_(threadIdx.x / kWarp),
        lane_(lane_anew()) {}

  __device__ void run() {
    start_copy_rows<kOwnRows>(queries_, job_.queries, own_, row_of(job_.shape, own_.first), job_.shape.rows,
                              thread_anew());
    fetch(0);
    copies_arrived();
    __syncthreads();
    take_queries();
#pragma unroll 1
    for (bool exact = false;; exact = true) {
      read();
      if (!__syncthreads_or(!exact && !in_range())) break;
      start_from_greatest();
    }
    store();
  }

 private:
  // What passes

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

  /// take(block, step, diagonal), see meet_passing_rows().
  template <class Take>
  __device__ void for_keys(Take&& take) const {
    meet_passing_rows<Own::kQueries>(
        job_.shape, own_, [&](int block) { fetch(block); }, take);
  }

  // Queries

  __device__ void take_queries() {
#pragma unroll
    for (int strip = 0; strip < kStrips; ++strip) {
#pragma unroll
      for (int step = 0; step < kSteps; ++step) {
        query_[strip][step] = left_of(queries_, kWarpRows * warp_ + kStrip * strip, 16 * step, lane_);
      }
      start_[strip][0] = start_[strip][1] = 0.0f;
    }
  }
  /// Of scores as exponents of 2.
  __device__ static float factor() {
    return kLog2E / std::sqrt(static_cast<float>(HeadSize));
  }

  /// Whether the lane's row of a strip, or the one 8 further down, reads key `key` of a group of 16, further
  /// on by its own column.
  template <bool Diagonal>
  __device__ bool reads(int strip, int group, int half, int key) const {
    const LanePlace place = lane_place(lane_);
    return !Diagonal || 16 * (group - strip) + key + place.column <= 8 * half + place.row;
  }

  /// Products of queries and 16 keys.
  __device__ void score(Sums (&scores)[kStrips][2], int block, int row) const {
#pragma unroll
    for (auto& of_strip : scores) of_strip[0] = of_strip[1] = no_sums();
#pragma unroll
    for (int step = 0; step < kSteps; ++step) {
      const RightFragments right = right_of_transposed(keys(block), row, 16 * step, lane_);
#pragma unroll
      for (int strip = 0; strip < kStrips; ++strip) {
        multiply_add(scores[strip][0], scores[strip][1], query_[strip][step], right);
      }
    }
  }

  __device__ void read() {
#pragma unroll
    for (int strip = 0; strip < kStrips; ++strip) {
      total_[strip][0] = total_[strip][1] = 0.0f;
#pragma unroll
      for (Sums& sums : read_[strip]) sums = no_sums();
    }
    for_keys([&](int block, int step, auto diagonal) { read_keys<decltype(diagonal)::kValue>(block, step); });
#pragma unroll
    for (auto& of_strip : total_) {
      of_strip[0] = quad_sum(of_strip[0]);
      of_strip[1] = quad_sum(of_strip[1]);
    }
  }

  /// Adds the values of 32 keys, each with its weight, and the weights.
  template <bool Diagonal>
  __device__ void read_keys(int block, int step) {
    uint32_t kept[kStrips][2];
    if constexpr (Dropout) {
      const uint32_t* const of_row =
          words(block) + kOwnRows * step + kWarpRows * warp_ + lane_place(lane_).row;
#pragma unroll
      for (int i = 0; i < 2 * kStrips; ++i) kept[i / 2][i % 2] = of_row[8 * i];
    }
#pragma unroll 1
    for (int group = 0; group < kStepRows / 16; ++group) {
      const int row = kStepRows * step + 16 * group;
      Sums scores[kStrips][2];
      score(scores, block, row);
      LeftFragment weights[kStrips];
#pragma unroll
      for (int strip = 0; strip < kStrips; ++strip) {
        weights[strip] = weights_of<Diagonal>(scores[strip], strip, group);
#pragma unroll
        for (int part = 0; part < 4; ++part) {
          uint32_t& pair = weights[strip].part[part];
          const float2 both = unpacked(pair);  // as they are multiplied with values, so that they sum up to 1
          total_[strip][part % 2] += both.x + both.y;
          if constexpr (Dropout) {
            pair = KeptPairs(kept[strip][part % 2], lane_).kept(pair, 2 * group + part / 2);
          }
        }
      }
#pragma unroll
      for (int i = 0; i < kSteps; ++i) {
        const RightFragments right = right_of(values(block), row, 16 * i, lane_);
#pragma unroll
        for (int strip = 0; strip < kStrips; ++strip) {
          multiply_add(read_[strip][2 * i], read_[strip][2 * i + 1], weights[strip], right);
        }
      }
    }
  }

  /// Scores become weights.
  template <bool Diagonal>
  __device__ LeftFragment weights_of(Sums (&scores)[2], int strip, int group) const {
#pragma unroll
    for (int i = 0; i < 8; ++i) {
      const int half = i / 2 % 2;
      float& value = scores[i / 4].value[i % 4];
      value = exp2_of(fmaf(value, factor(), start_[strip][half]));
      if (!reads<Diagonal>(strip, group, half, i / 4 * 8 + i % 2)) value = 0.0f;
    }
    return as_left(scores[0], scores[1]);
  }

  __device__ bool in_range() const {
    constexpr float kMost = 0x1p100f, kLeast = 0x1p-100f;
    bool all = true;
#pragma unroll
    for (const auto& of_strip : total_) {
#pragma unroll
      for (const float total : of_strip) all = all && total > kLeast && total < kMost;
    }
    return all;
  }

  /// Leaves block 0 on its way.
  __device__ void start_from_greatest() {
    float greatest[kStrips][2] = {{-INFINITY, -INFINITY}, {-INFINITY, -INFINITY}};
    fetch(0);
    for_keys([&](int block, int step, auto diagonal) {
      constexpr bool kDiagonal = decltype(diagonal)::kValue;
#pragma unroll 1
      for (int group = 0; group < kStepRows / 16; ++group) {
        Sums scores[kStrips][2];
        score(scores, block, kStepRows * step + 16 * group);
#pragma unroll
        for (int i = 0; i < 8 * kStrips; ++i) {
          const int strip = i / 8, side = i / 2 % 2;
          if (reads<kDiagonal>(strip, group, side, i / 4 % 2 * 8 + i % 2)) {
            greatest[strip][side] = fmaxf(greatest[strip][side], scores[strip][i / 4 % 2].value[i % 4]);
          }
        }
      }
    });
#pragma unroll
    for (int i = 0; i < 2 * kStrips; ++i) start_[i / 2][i % 2] = -factor() * quad_max(greatest[i / 2][i % 2]);
    __syncthreads();
    fetch(0);
  }

  __device__ void store() const {
    const LanePlace place = lane_place(lane_);
    const HeadMatrix<Bf16> to = rows_of_heads<HeadSize>(job_.read, job_.shape);
#pragma unroll
    for (int strip = 0; strip < kStrips; ++strip) {
      const int place_in_block = kWarpRows * warp_ + kStrip * strip,
                row = row_of(job_.shape, own_.first + place_in_block);
      float share[2];
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        const int own = row + place.row + 8 * half;
        if (place.column == 0 && own >= 0 && own < job_.shape.rows) {
          job_.log_sums[int64_t{own_.number} * job_.shape.rows + own] =
              __log2f(total_[strip][half]) - start_[strip][half];
        }
        share[half] = __fdividef(Dropout ? job_.scale : 1.0f, total_[strip][half]);
      }
      store_strip(to, own_, row, 0, job_.shape.rows, from_row(queries_, place_in_block), read_[strip], share);
    }
  }

  const HeadAttention& job_;
  const OwnRows& own_;
  const Tile<HeadSize> queries_;
  char* const passing_;
  const int warp_;
  const unsigned lane_;
  LeftFragment query_[kStrips][kSteps];
  float start_[kStrips][2];  ///< −m, of the lane's rows
  float total_[kStrips][2];  ///< of weights; the lane's share until all are read
  Sums read_[kStrips][kEights];
};

template <int HeadSize, bool Dropout>
__global__ void __launch_bounds__(kThreads, 3) long_attention_kernel(const __grid_constant__ Job job) {
  __shared__ OwnRows own;
  if (threadIdx.x == 0) own = job.order.rows<Own::kQueries>(blockIdx.x);
  __syncthreads();
  LongQueries<HeadSize, Dropout>(job, own, dynamic_shared_memory()).run();
}

template <int HeadSize, bool Dropout>
void launch(const Job& job, cudaStream_t stream) {
  gpu::launch("long_attention_kernel", long_attention_kernel<HeadSize, Dropout>, job.order.blocks(), kThreads,
              LongQueries<HeadSize, Dropout>::kBytes, stream, job);
}

}  // namespace

void long_attention(const HeadAttention& attention, cudaStream_t stream) {
  const Job job = {attention, BlockOrder::of(attention.shape, attention.shape.tokens - attention.shape.rows)};
  const bool dropout = attention.keep != nullptr;
  if (attention.shape.width / attention.shape.heads == 32) {
    return dropout ? launch<32, true>(job, stream) : launch<32, false>(job, stream);
  }
  return dropout ? launch<64, true>(job, stream) : launch<64, false>(job, stream);
}

}  // namespace adtrain::kernels
