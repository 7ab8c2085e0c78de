#pragma once

#include <cstdint>

#include "kernels/BlockShape.h"
#include "kernels/primitives/Tile.cuh"

/// How a thread block divides its work: into groups of warps, and a sequence's warp tiles among a group's
/// warps.
namespace adtrain::kernels::forward_pass {

constexpr int kGroups = 2;
constexpr int kGroupWarps = 8;
constexpr int kGroupThreads = kGroupWarps * kWarp;
constexpr int kThreads = kGroups * kGroupThreads;

/// 16 tokens of a sequence as queries, and the rows of their output.
struct WarpTile {
  int sequence;
  bool second;  ///< of the second stream
  int number;   ///< its tokens begin at 16 · number in the stream; negative for none
  int rows;     ///< output rows of a sequence
  int begin;    ///< of these, the stream's first one
  int end;      ///< the end of the stream's
  int row;      ///< the lane's first; its second is 8 further down

  __device__ WarpTile(const BlockShape& shape, int sequence_number, bool of_second, int tile_number)
      : sequence(sequence_number),
        second(of_second),
        number(tile_number),
        rows(shape.rows),
        begin(of_second ? max(shape.rows - shape.queries, 0) : 0),
        end(of_second ? shape.rows : shape.rows - shape.queries),
        row(kWarpTile * tile_number + lane_place().row + end - shape.tokens) {}

  __device__ int first_row() const { return row - lane_place().row; }
  /// Whether any of its rows is an output row.
  __device__ bool exists() const { return number >= 0 && first_row() + kWarpTile > begin; }
  /// Whether the lane's first row or, half = 1, its second is an output row.
  __device__ bool comes_out(int half) const {
    return static_cast<unsigned>(row + 8 * half - begin) < static_cast<unsigned>(end - begin);
  }
  /// The index of the lane's first row among the output rows of all sequences. The number of these fits in an
  /// int, as they would not fit in memory otherwise. With `stretch`: the index in the stretch of that number,
  /// each of `rows` rows.
  __device__ int64_t place() const { return sequence * rows + row; }
  __device__ int64_t place(int stretch) const { return int64_t{stretch} * rows + row; }
};

/// Which warp tiles each warp takes, one in each turn. They are ordered by their number of keys, which is
/// greater for later tokens. The first eight go to warps 0 … 7, the next eight to warps 7 … 0, and so on.
/// While both streams have output rows, their warp tiles alternate. `Together` neighbouring warps have the
/// same number of turns.
template <bool Streams, int Together>
class WarpTileSchedule {
 public:
  static constexpr int kMost = Streams ? 4 : 2;

  __device__ WarpTileSchedule(const BlockShape& shape, int warp)
      : shape_(shape),
        warp_(warp),
        last_((shape.tokens - 1) / kWarpTile),
        both_(!Streams || shape.rows <= shape.queries
                  ? 0
                  : last_ + 1 - (shape.tokens - shape.queries) / kWarpTile) {
    for (int turn = 0; turn < kMost; ++turn) {
      if (!any(0, turn, [](const WarpTile& tile) { return tile.exists(); })) continue;
      count_ = turn + 1;
      with_tiles_ |= 1u << turn;
    }
  }

  /// The number of turns; at least one.
  __device__ int count() const { return count_; }
  /// Whether in this turn the warp tile of this warp or of another one with the same turns exists.
  __device__ bool has_tiles(int turn) const { return (with_tiles_ >> turn & 1) != 0; }
  __device__ WarpTile warp_tile(int sequence, int turn) const { return warp_tile(sequence, turn, warp_); }
  /// Whether `condition` holds for one of these warp tiles.
  template <class Condition>
  __device__ bool any(int sequence, int turn, const Condition& condition) const {
    bool result = false;
#pragma unroll
    for (int i = 0; i < Together; ++i) {
      result = result || condition(warp_tile(sequence, turn, warp_ / Together * Together + i));
    }
    return result;
  }

 private:
  __device__ WarpTile warp_tile(int sequence, int turn, int warp) const {
    const int place = kGroupWarps * turn + (turn % 2 == 0 ? warp : kGroupWarps - 1 - warp);
    if (Streams && place < 2 * both_) return {shape_, sequence, place % 2 == 0, last_ - place / 2};
    return {shape_, sequence, Streams && both_ == 0, last_ - (place - both_)};
  }

  const BlockShape& shape_;
  int warp_;
  int last_;  ///< the last warp tile of a stream
  int both_;  ///< warp tiles of the second stream, if both streams have output rows
  int count_ = 1;
  unsigned with_tiles_ = 0;  ///< bit i is for turn i
};

}  // namespace adtrain::kernels::forward_pass
