#pragma once

#include <cstdint>

#include "kernels/BlockShape.h"
#include "kernels/attention/resident/forward/Memory.cuh"
#include "kernels/attention/resident/forward/WarpTiles.cuh"

/// The sequence that a group works on.
namespace adtrain::kernels::forward_pass {

/// One sequence, which a group works on. `Block`: PostNorm, PreNorm or StoredHeads.
template <class Block, int Width>
struct Sequence {
  const typename Block::Job& job;
  const Memory<Block, Width>& memory;
  int number;
  int warp;    ///< number in the group
  int parity;  ///< alternates with each sequence of the group

  __device__ Sequence next() const {
    return {job, memory, number + kGroups * static_cast<int>(gridDim.x), warp, 1 - parity};
  }
  __device__ float* longest() const { return memory.longest + parity * kMostHeads; }
  /// Tokens before it are padding.
  __device__ int first_token() const {
    return Block::kPadded && job.shape.first != nullptr ? __ldg(job.shape.first + number) : 0;
  }
  /// Each warp takes one of every kGroupWarps warp tiles, not counting those of padding.
  __device__ int first_tile_of_warp() const {
    return Block::kPadded ? first_token() / kWarpTile + warp : warp;
  }
  /// Whether a warp tile is all padding.
  __device__ bool pads(const WarpTile& warp_tile) const {
    return Block::kPadded && !warp_tile.second && kWarpTile * (warp_tile.number + 1) <= first_token();
  }
  /// The first stream's rows of an array (S · (tokens + queries), Width). For the second stream, an offset
  /// such that each query is in the row of the token whose position it takes.
  __device__ const Bf16* rows(const Bf16* all, bool second) const {
    const int64_t before = int64_t{number} * job.shape.length() + (second ? job.shape.queries : 0);
    return all + before * Width;
  }
};

/// A block whose kernel computes attention's projections. The attention output has the layout of the residual
/// stream.
struct ProjectingBlock {
  /// The address of the lane's first output row of a warp tile (output_of), and the distance between rows
  /// (row_of_output).
  template <int Width, class Block>
  static __device__ Bf16* output_of(const Sequence<Block, Width>& sequence, const WarpTile& warp_tile) {
    return sequence.job.attention_output() + warp_tile.place() * Width;
  }
  template <int Width, class Job>
  static __device__ int row_of_output(const Job&) {
    return Width;
  }
};

}  // namespace adtrain::kernels::forward_pass
