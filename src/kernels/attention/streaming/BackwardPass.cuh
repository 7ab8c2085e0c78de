#pragma once

#include <cmath>

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
};

/// A thread block is one warpgroup, three of which share a multiprocessor: while one computes weights, the
/// tensor cores work for another.
constexpr int kOwnRows = kGroupRows, kThreads = threads_of(kOwnRows), kBlocksTogether = 3;

/// A thread of a block that owns keys or queries: two tiles of these rows, the left operands of products, and
/// two of the rows that stream by, twice. Left operands in registers would spare shared memory a quarter of
/// its work, but ptxas 13.0 then overwrites those that a loop does not change.
template <int HeadSize>
class StreamingBackward {
 protected:
  static constexpr int kSteps = HeadSize / 16, kEights = HeadSize / 8;
  static constexpr int kStages = 2;
  static constexpr int kOwnTile = Tile<HeadSize>::bytes(kOwnRows);
  static constexpr int kPassingTile = Tile<HeadSize>::bytes(kPassingRows);
  /// Where what a stage holds beside its two tiles begins.
  static constexpr int kBesideTiles = 2 * kOwnTile + 2 * kStages * kPassingTile;
  using OwnSums = Sums[kEights];

  __device__ StreamingBackward(const Job& job, const OwnRows& own, char* shared)
      : job_(job.attention),
        gradients_(job.gradients),
        own_(own),
        shared_(shared),
        warp_(threadIdx.x / kWarp),
        lane_(lane_anew()) {}

  __device__ Tile<HeadSize> tile_at(int bytes) const { return {reinterpret_cast<Bf16*>(shared_ + bytes)}; }
  __device__ Tile<HeadSize> own_tile(int which) const { return tile_at(which * kOwnTile); }
  __device__ Tile<HeadSize> passing_tile(int which, int block) const {
    return tile_at(2 * kOwnTile + (which * kStages + block % kStages) * kPassingTile);
  }
  template <class Value>
  __device__ Value* values_at(int bytes) const {
    return reinterpret_cast<Value*>(shared_ + bytes);
  }
  __device__ HeadMatrix<const Bf16> d_attention_output_rows() const {
    return rows_of_heads<HeadSize>(gradients_.attention_output, job_.shape);
  }
  __device__ static float root() { return std::sqrt(static_cast<float>(HeadSize)); }
  /// exp2 of the scaled product of query and key, plus `start`: minus the query's lse, and ALiBi's part.
  __device__ static float weight_of(float product, float start) {
    return exp2_of(fmaf(product, kLog2E / root(), start));
  }

  /// Waits until a stage has been copied, and until nothing uses the other one any more.
  __device__ static void enter_stage() {
    copies_arrived();
    show_to_products();
    __syncthreads();
  }
  /// sums += own rows · (the stage's rows)ᵀ, one group of products.
  __device__ static void start_scores(PassingSums& sums, Tile<HeadSize> own, Tile<HeadSize> passing) {
    take_sums(sums);
    begin_products();
#pragma unroll
    for (int step = 0; step < kSteps; ++step) start_product_with_rows(sums, own, passing, 16 * step);
    close_products();
  }
  /// sums += what the own rows have for the stage's rows · these rows, one group of products.
  __device__ static void start_sums(OwnSums& sums, const PassingFragments& left, Tile<HeadSize> passing) {
    begin_products();
#pragma unroll
    for (int step = 0; step < kPassingSteps; ++step) {
      start_product_over_rows(sums, left[step], passing, 16 * step);
    }
    close_products();
  }
  /// Rounds what belongs to 16 of the stage's rows.
  __device__ static void round(PassingFragments& rounded, const PassingSums& sums) {
#pragma unroll
    for (int step = 0; step < kPassingSteps; ++step) {
      rounded[step] = as_left(sums[2 * step], sums[2 * step + 1]);
    }
  }

  /// `first`: the matrix's row of the thread block's first row. Rows in [begin, end) are stored.
  __device__ void store(const HeadMatrix<Bf16>& to, int first, int begin, int end, Tile<HeadSize> tile,
                        float scale, const OwnSums& sums) const {
    const int row = kWarpTile * warp_;
    store_warp_tile(to, own_, first + row, begin, end, from_row(tile, row), sums, {scale, scale});
  }

  const MultiheadAttention& job_;
  const MultiheadAttentionGradients& gradients_;
  const OwnRows& own_;
  char* const shared_;
  const int warp_;
  const unsigned lane_;
};

}  // namespace adtrain::kernels::streaming_attention_pass
