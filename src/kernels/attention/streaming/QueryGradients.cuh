#pragma once

#include "kernels/attention/streaming/BackwardPass.cuh"
#include "kernels/primitives/Instructions.cuh"

/// A thread block owns 128 queries of a head; the head's keys and dS stream by. It computes dq.
namespace adtrain::kernels::streaming_attention_pass {

template <int HeadSize>
class QueriesBackward : StreamingBackward<HeadSize> {
  using Base = StreamingBackward<HeadSize>;
  using Base::launch_, Base::job_, Base::own_, Base::gradients_, Base::warp_, Base::lane_;
  static constexpr int kTiles = kPassingRows / kWarpTile;  ///< warp tiles of keys in a stage
  static constexpr int kStages = 3;                        ///< in shared memory, two of them on their way

 public:
  static constexpr int kBytes = kStages * Base::kPassingTile;
  static_assert(kBytes >= Base::kOwnTile);

  __device__ QueriesBackward(const Job& job, const OwnRows& own, char* shared) : Base(job, own, shared) {}

  __device__ void run() {
    const int first = row_of(job_.shape, own_.first);
    const int end = first + kOwnRows <= 0 ? 0 : min(own_.first + kOwnRows, job_.shape.tokens);
    start();
    fetch(own_.begin, end);
    fetch(own_.begin + 1, end);
#pragma unroll 1
    for (int block = own_.begin; kPassingRows * block < end; ++block) {
      copies_arrived_but_last();
      __syncthreads();
      fetch(block + 2, end);
      add_keys(block);
    }
    __syncthreads();
#pragma unroll
    for (int warp_tile = 0; warp_tile < kWarpTiles; ++warp_tile) {
      this->store(gradients_.queries, first, -gradients_.rows_before, job_.shape.rows, warp_tile,
                  this->tile_at(0), job_.scale / Base::root(), dquery_[warp_tile]);
    }
  }

 private:
  __device__ void start() {
    first_ = own_.first / kWarpTile + kWarpTiles * warp_;
    dscores_ = launch_.dscores(own_.number, first_, 0, lane_);
#pragma unroll
    for (int warp_tile = 0; warp_tile < kWarpTiles; ++warp_tile) {
      end_[warp_tile] = launch_.tiles.has(first_ + warp_tile, 0) ? first_ + warp_tile + 1 : 0;
#pragma unroll
      for (int tile = 0; tile < kTiles; ++tile)
        next_[warp_tile][tile] = dscores(warp_tile, kTiles * own_.begin + tile);
#pragma unroll
      for (Sums& sums : dquery_[warp_tile]) sums = no_sums();
    }
  }

  __device__ Tile<HeadSize> keys(int block) const {
    return this->tile_at(block % kStages * Base::kPassingTile);
  }
  /// Starts to copy a stage, or nothing from `end` on, the end of the keys that are read.
  __device__ void fetch(int block, int end) const {
    const int first = kPassingRows * block;
    if (first < end)
      start_copy_rows<kPassingRows>(keys(block), job_.keys, own_, first, job_.shape.tokens, thread_anew());
    close_copies();
  }
  /// A tile of dS. It is read only once, so the load does not keep it in a cache. `keys`: a warp tile, as
  /// below.
  __device__ LeftFragment dscores(int warp_tile, int keys) const {
    if (keys >= end_[warp_tile]) return {};
    const uint4 part = __ldcs(dscores_ + (warp_tile * (first_ + 1) + keys) * kWarp);
    return {{part.x, part.y, part.z, part.w}};
  }

  /// Adds 64 keys to dq. After every 16 keys, the loads of dS for the keys 64 further on are issued.
  __device__ void add_keys(int block) {
    lane_ = lane_anew();
#pragma unroll
    for (int tile = 0; tile < kTiles; ++tile) {
      LeftFragment dscores_now[kWarpTiles];
#pragma unroll
      for (int warp_tile = 0; warp_tile < kWarpTiles; ++warp_tile) {
        dscores_now[warp_tile] = transposed(next_[warp_tile][tile]);
        next_[warp_tile][tile] = dscores(warp_tile, kTiles * (block + 1) + tile);
      }
      if (kTiles * block + tile >= max(end_[0], end_[1])) continue;
#pragma unroll
      for (int i = 0; i < Base::kSteps; ++i) {
        const RightFragments right = right_of(keys(block), kWarpTile * tile, 16 * i, lane_);
#pragma unroll
        for (int warp_tile = 0; warp_tile < kWarpTiles; ++warp_tile) {
          multiply_add(dquery_[warp_tile][2 * i], dquery_[warp_tile][2 * i + 1], dscores_now[warp_tile],
                       right);
        }
      }
    }
  }

  int first_;             ///< the warp's first warp tile of queries
  int end_[kWarpTiles];   ///< of the warp tiles of keys that each warp tile of queries reads
  const uint4* dscores_;  ///< dS of the first warp tile and the first keys
  LeftFragment next_[kWarpTiles][kTiles];
  Sums dquery_[kWarpTiles][Base::kEights];
};

}  // namespace adtrain::kernels::streaming_attention_pass
