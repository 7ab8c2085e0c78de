#pragma once

#include <cmath>

#include "kernels/attention/streaming/ScoreTiles.h"
#include "kernels/attention/streaming/StreamingAttention.h"
#include "kernels/attention/streaming/StreamingTiles.cuh"
#include "kernels/primitives/Tile.cuh"

/// What the two large kernels of streaming attention's backward pass share.
namespace adtrain::kernels::streaming_attention_pass {

/// The work on a group of heads.
struct Job {
  MultiheadAttention attention;
  MultiheadAttentionGradients gradients;
  ScoreTiles tiles;
  int first_head;  ///< among the heads of all sequences
  BlockOrder of_queries, of_keys;

  template <Own kOwn>
  __device__ OwnRows rows(int block) const {
    OwnRows own = (kOwn == Own::kQueries ? of_queries : of_keys).rows<kOwn>(block, attention.shape);
    own.number += first_head;
    own.sequence = own.number / attention.shape.heads;
    own.head = own.number % attention.shape.heads;
    return own;
  }
  /// The lane's part of a tile of dS. `number`: the head's number among the heads of all sequences.
  __device__ uint4* dscores(int number, int queries, int keys, unsigned lane) const {
    const int64_t tile = int64_t{number - first_head} * tiles.of_head + tiles.place(queries, keys);
    return reinterpret_cast<uint4*>(gradients.dscores) + tile * kWarp + lane;
  }
};
static_assert(ScoreTiles::kBlock == kPassingRows && ScoreTiles::kSide == kWarpTile &&
              ScoreTiles::kElements * sizeof(Bf16) == kWarp * sizeof(uint4));

/// A thread of a block that owns keys or queries: matrices and their sizes.
template <int HeadSize>
class StreamingBackward {
 protected:
  static constexpr int kSteps = HeadSize / 16, kEights = HeadSize / 8;
  static constexpr int kOwnTile = Tile<HeadSize>::bytes(kOwnRows);
  static constexpr int kPassingTile = Tile<HeadSize>::bytes(kPassingRows);

  __device__ StreamingBackward(const Job& job, const OwnRows& own, char* shared)
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
  /// `first`: the matrix's row of the thread block's first row. Rows in [begin, end) are stored.
  __device__ void store(const HeadMatrix<Bf16>& to, int first, int begin, int end, int warp_tile,
                        Tile<HeadSize> tile, float scale, const Sums (&sums)[kEights]) const {
    const int row = kWarpRows * warp_ + kWarpTile * warp_tile;
    store_warp_tile(to, own_, first + row, begin, end, from_row(tile, row), sums, {scale, scale});
  }

  const Job& launch_;
  const MultiheadAttention& job_;
  const MultiheadAttentionGradients& gradients_;
  const OwnRows& own_;
  char* const shared_;
  const int warp_;
  unsigned lane_;  ///< lane_anew(), read again where a lane's addresses would take scarce registers
};

}  // namespace adtrain::kernels::streaming_attention_pass
