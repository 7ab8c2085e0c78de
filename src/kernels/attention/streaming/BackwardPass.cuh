#pragma once

#include <cmath>
#include <type_traits>

#include "kernels/attention/GroupTile.cuh"
#include "kernels/attention/streaming/StreamingAttention.h"
#include "kernels/attention/streaming/StreamingTiles.cuh"
#include "kernels/primitives/Tile.cuh"

/// What the two large kernels of streaming attention's backward pass share.
namespace adtrain::kernels::streaming_attention_pass {

/// The work of a call.
struct Job {
  MultiheadAttention attention;
  MultiheadAttentionGradients gradients;
  BlockOrder of_queries, of_keys;
  TensorMap queries, d_attention_output, keys, values;
};

/// Eight features of a head in a row of the attention output, or of its gradient.
template <class Short, int HeadSize>
__device__ ChunkValues output_chunk(const Bf16* output, const MultiheadAttention& attention, int sequence,
                                    int row, int head, int chunk) {
  const Bf16* const from = output_rows<HeadSize>(output, attention).at(sequence, row, head) + 8 * chunk;
  return ChunkValues::of<Short>(__ldg(reinterpret_cast<const uint4*>(from)));
}

constexpr int kBlocksTogether = 3;  ///< thread blocks on a multiprocessor

/// A thread of a block that owns keys or queries: two tiles of these rows, the left operands of products, and
/// two of the rows that stream by, twice. Left operands in registers would spare shared memory a quarter of
/// its work, but ptxas 13.0 then overwrites those that a loop does not change.
template <class Short, int HeadSize>
class StreamingBackward {
 protected:
  static constexpr bool kHalf = std::is_same_v<Short, __half>;
  /// In fp16, weights are kept times 2^kShift, and their gradients times gradient_scale(), a power of 2 that
  /// makes the longest possible one of the head at most 1. So neither they nor their products, at most
  /// 2^kShift, overflow; and gradients are as exact as bf16 has them down to 2^-14 of the longest one,
  /// however small a loss scale has left them. Both factors are taken back from the sums.
  static constexpr float kShift = kHalf ? 15.0f : 0.0f;

  static constexpr int kSteps = HeadSize / 16, kEights = HeadSize / 8;
  static constexpr int kOwnTile = Tile<HeadSize>::bytes(kOwnRows);
  static constexpr int kPassingTile = Tile<HeadSize>::bytes(kPassingRows);
  static constexpr int kArrivals = 2 * kOwnTile + 2 * kStages * kPassingTile;
  /// Where what a stage holds beside its two tiles begins.
  static constexpr int kBesideTiles = kArrivals + Arrivals::kBytes;
  using OwnSums = Sums[kEights];

  /// `one`, `other`: of the matrices whose rows stream by, from row `first` on.
  __device__ StreamingBackward(const Job& job, const OwnRows& own, char* shared, const TensorMap& one,
                               const TensorMap& other, int first)
      : job_(job.attention),
        gradients_(job.gradients),
        own_(own),
        shared_(shared),
        warp_(threadIdx.x / kWarp),
        lane_(lane_anew()),
        gradient_scale_(kHalf ? gradient_scale(job.attention, job.gradients, own.number) : 1.0f),
        passing_(one, other, own, first, arrivals()) {}

  __device__ Tile<HeadSize> tile_at(int bytes) const { return {reinterpret_cast<Bf16*>(shared_ + bytes)}; }
  __device__ Tile<HeadSize> own_tile(int which) const { return tile_at(which * kOwnTile); }
  __device__ Tile<HeadSize> passing_tile(int which, int block) const {
    return tile_at(2 * kOwnTile + (which * kStages + block % kStages) * kPassingTile);
  }
  template <class Value>
  __device__ Value* values_at(int bytes) const {
    return reinterpret_cast<Value*>(shared_ + bytes);
  }
  __device__ Arrivals& arrivals() const { return *values_at<Arrivals>(kArrivals); }
  __device__ static float root() { return std::sqrt(static_cast<float>(HeadSize)); }
  /// exp2 of the scaled product of query and key, plus `start`: minus the query's lse, and ALiBi's part.
  __device__ static float weight_of(float product, float start) {
    return exp2_of(fmaf(product, kLog2E / root(), start));
  }

  /// A gradient d_attention_output · v − delta is at most 2 |d_attention_output| |v|. 1 where that is 0 or
  /// not finite, which then comes out.
  __device__ static float gradient_scale(const MultiheadAttention& attention,
                                         const MultiheadAttentionGradients& gradients, int number) {
    const float* const longest = gradients.longest_rows + number;
    const float most = 2.0f * longest[0] * longest[attention.shape.sequences * attention.shape.heads];
    return most > 0.0f && most < INFINITY ? exp2_of(-std::ceil(__log2f(most))) : 1.0f;
  }
  /// What takes both factors back from sums of weights' gradients, and from sums of weights.
  __device__ float of_gradients() const { return kHalf ? of_weights() / gradient_scale_ : 1.0f; }
  __device__ static float of_weights() { return kHalf ? 0x1p-15f : 1.0f; }

  /// Starts to copy the own tiles, from row `first` of two matrices on.
  __device__ void start_own_tiles(const TensorMap& one, const TensorMap& other, int first) const {
    arrivals().begin([&](TransferBarrier& arrived) {
      start_copy_rows(own_tile(0), one, own_, first, arrived);
      start_copy_rows(own_tile(1), other, own_, first, arrived);
    });
    __syncthreads();
  }
  __device__ void await_own_tiles() const { arrivals().own_rows.await(0); }
  /// Waits until a stage has been copied, and until nothing uses the other one any more.
  __device__ void await_stage(int block) {
    copies_arrived();
    passing_.await(block);
    __syncthreads();
  }
  /// sums += own rows · (the stage's rows)ᵀ, one group of products.
  __device__ static void start_scores(PassingSums& sums, Tile<HeadSize> own, Tile<HeadSize> passing) {
    take_sums(sums);
    begin_products();
#pragma unroll
    for (int step = 0; step < kSteps; ++step) start_product_with_rows<Short>(sums, own, passing, 16 * step);
    close_products();
  }
  /// sums += what the own rows have for the stage's rows · these rows, one group of products.
  __device__ static void start_sums(OwnSums& sums, const PassingFragments& left, Tile<HeadSize> passing) {
    begin_products();
#pragma unroll
    for (int step = 0; step < kPassingSteps; ++step) {
      start_product_over_rows<Short>(sums, left[step], passing, 16 * step);
    }
    close_products();
  }
  /// Rounds what belongs to 16 of the stage's rows.
  __device__ __forceinline__ static void round(PassingFragments& rounded, const PassingSums& sums) {
#pragma unroll
    for (int step = 0; step < kPassingSteps; ++step) {
      rounded[step] = as_left<Short>(sums[2 * step], sums[2 * step + 1]);
    }
  }
  /// The same of gradients of weights, scaled.
  __device__ __forceinline__ void round_gradients(PassingFragments& rounded, const PassingSums& sums) const {
    if constexpr (!kHalf) {
      round(rounded, sums);
    } else {
#pragma unroll
      for (int step = 0; step < kPassingSteps; ++step) {
#pragma unroll
        for (int part = 0; part < 4; ++part) {
          const float* const pair = sums[2 * step + part / 2].value + 2 * (part % 2);
          rounded[step].part[part] = packed_gradients(pair[0], pair[1]);
        }
      }
    }
  }
  /// Two of them.
  __device__ __forceinline__ uint32_t packed_gradients(float first, float second) const {
    if constexpr (kHalf) return packed<Short>(gradient_scale_ * first, gradient_scale_ * second);
    return packed<Short>(first, second);
  }

  /// `first`: the matrix's row of the thread block's first row. Rows in [begin, end) are stored.
  __device__ void store(const HeadMatrix<Bf16>& to, int first, int begin, int end, Tile<HeadSize> tile,
                        float scale, const OwnSums& sums) const {
    const int row = kWarpTile * warp_;
    store_warp_tile<Short>(to, own_, first + row, begin, end, from_row(tile, row), sums, {scale, scale});
  }

  /// Where the columns' sums are wanted: those of own tiles as store() has left them. A warp has 16 columns,
  /// which the tensor cores add up as the product with a row of ones. Rows that do not exist have gradients
  /// of 0: no key reads them, and no query of theirs has any.
  /// `first_kind`: of the first tile, among queries, keys and values.
  template <int kTiles>
  __device__ void put_column_sums(int first_kind) const {
    static_assert(kOwnRows == MultiheadAttentionGradients::kPartRows);
    if (gradients_.column_parts == nullptr) return;
    __syncthreads();
    const int column = kWarpTile * warp_;
    if (column >= HeadSize) return;
    constexpr uint32_t kOnes = kTwoOnes<Short>;
    const LeftFragment ones = {{kOnes, kOnes, kOnes, kOnes}};
    const int width = job_.shape.width,
              part = own_.sequence * MultiheadAttentionGradients::blocks(job_.shape.tokens) +
                     own_.first / kOwnRows;
    const unsigned lane = lane_anew();
    const LanePlace place = lane_place(lane);
    float* to = gradients_.column_parts + (int64_t{3} * part + first_kind) * width + HeadSize * own_.head +
                column + place.column;
#pragma unroll
    for (int tile = 0; tile < kTiles; ++tile, to += width) {
      Sums first = no_sums(), second = no_sums();
#pragma unroll
      for (int row = 0; row < kOwnRows; row += kWarpTile) {
        multiply_add<Short>(first, second, ones, right_of(own_tile(tile), row, column, lane));
      }
      if (place.row == 0) {  // all rows of the product are equal
        *reinterpret_cast<float2*>(to) = {first.value[0], first.value[1]};
        *reinterpret_cast<float2*>(to + 8) = {second.value[0], second.value[1]};
      }
    }
  }

  const MultiheadAttention& job_;
  const MultiheadAttentionGradients& gradients_;
  const OwnRows& own_;
  char* const shared_;
  const int warp_;
  const unsigned lane_;
  const float gradient_scale_;
  PassingRows<HeadSize> passing_;
};

}  // namespace adtrain::kernels::streaming_attention_pass
