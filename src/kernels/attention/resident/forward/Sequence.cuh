#pragma once

#include <cstdint>

#include "kernels/BlockShape.h"
#include "kernels/attention/resident/forward/Memory.cuh"
#include "kernels/attention/resident/forward/WarpTiles.cuh"

/// Of what a launch works on, the one sequence that a group has in hand.
namespace adtrain::kernels::forward_pass {

/// A sequence in the hands of a group. `Block`: PostNorm or PreNorm.
template <class Block, int Width>
struct Sequence {
  const typename Block::Job& job;
  const Memory<Block, Width>& memory;
  int number;
  int warp;    ///< of the group
  int parity;  ///< of the sequences that the group has taken before

  __device__ Sequence next() const {
    return {job, memory, number + kGroups * static_cast<int>(gridDim.x), warp, 1 - parity};
  }
  __device__ float* longest() const { return memory.longest + parity * kMostHeads; }
  /// Tokens before it are padding.
  __device__ int first_token() const {
    return Block::kPadded && job.shape.first != nullptr ? __ldg(job.shape.first + number) : 0;
  }
  /// Of every kGroupWarps warp tiles each warp has one, those of padding left out.
  __device__ int first_tile_of_warp() const {
    return Block::kPadded ? first_token() / kWarpTile + warp : warp;
  }
  /// Whether a warp tile is nothing but padding.
  __device__ bool pads(const WarpTile& warp_tile) const {
    return Block::kPadded && !warp_tile.second && kWarpTile * (warp_tile.number + 1) <= first_token();
  }
  /// Of an array (S · (tokens + queries), Width), its first stream's rows, or the second's such that a query
  /// is in the row of the token in whose place it stands.
  __device__ const Bf16* rows(const Bf16* all, bool second) const {
    const int64_t before = int64_t{number} * job.shape.length() + (second ? job.shape.queries : 0);
    return all + before * Width;
  }
};

/// A block whose kernel has the attention's projections: what is read lies as the residual stream does.
struct ProjectingBlock {
  static constexpr bool kProjects = true;

  /// Where the lane's first row of what a warp tile reads begins, and how far it is from one row to the next.
  template <int Width, class Block>
  static __device__ Bf16* read_of(const Sequence<Block, Width>& sequence, const WarpTile& warp_tile) {
    return sequence.job.attention_output() + warp_tile.place() * Width;
  }
  template <int Width, class Job>
  static __device__ int row_of_read(const Job&) {
    return Width;
  }
};

}  // namespace adtrain::kernels::forward_pass
