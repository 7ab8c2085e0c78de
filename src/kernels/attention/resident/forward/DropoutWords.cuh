#pragma once

#include <cstdint>

#include "kernels/BlockShape.h"
#include "kernels/attention/resident/forward/WarpTiles.cuh"
#include "kernels/primitives/Instructions.cuh"
#include "kernels/primitives/KeptPairs.cuh"
#include "kernels/primitives/Tile.cuh"

/// Loads dropout words from global memory for the fragments that they mask. The words of a warp tile are
/// prefetched in advance.
namespace adtrain::kernels::forward_pass {

/// The dropout words of a few heads for the lane's two rows, one word for 32 keys.
template <int Heads, bool Dropout>
class AttentionWords {
 public:
  /// Begins at `word` of each head. `head`: the first head's number among the heads of all sequences.
  template <class Job>
  __device__ AttentionWords(const Job& job, const WarpTile& warp_tile, int head, int word)
      : warp_tile_(warp_tile) {
    const int words_of_head = (job.shape.tokens + 31) >> 5;
    const int first = head * words_of_head + word;
#pragma unroll
    for (int i = 0; i < Heads; ++i)
      next_[i] = job.attention_keep() + warp_tile.place(first + i * words_of_head);
    load();
  }

  struct Words {
    uint32_t of[Heads][2];
  };
  /// Returns the words of the next 32 keys. `more`: whether there will be another call; its words are then
  /// loaded meanwhile.
  __device__ Words next(bool more) {
    const Words now = words_;
    if (more) load();
    return now;
  }

 private:
  __device__ void load() {
#pragma unroll
    for (int i = 0; i < Heads; ++i) {
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        if (warp_tile_.comes_out(half)) words_.of[i][half] = __ldg(next_[i] + 8 * half);
      }
      next_[i] += warp_tile_.rows;
    }
  }

  const WarpTile& warp_tile_;
  const uint32_t* next_[Heads];
  Words words_ = {};
};
template <int Heads>
class AttentionWords<Heads, false> {
 public:
  template <class Job>
  __device__ AttentionWords(const Job&, const WarpTile&, int, int) {}
  struct Words {
    uint32_t of[Heads][2];
  };
  __device__ Words next(bool) { return {}; }
};

/// The dropout words of 32 · Count columns for the lane's two rows; 0 for rows that are not output.
template <int Count>
struct RowWords {
  uint32_t of[2][Count];

  /// `words`: the first row's, in an array (S · R, words_of_row).
  __device__ static RowWords loaded(const uint32_t* words, int words_of_row, const WarpTile& warp_tile) {
    struct alignas(Count * sizeof(uint32_t)) OfRow {
      uint32_t of[Count];
    };
    RowWords result = {};
    const uint32_t* const first = words + warp_tile.place() * words_of_row;
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      if (!warp_tile.comes_out(half)) continue;
      const OfRow of_row = *reinterpret_cast<const OfRow*>(first + 8 * half * words_of_row);
#pragma unroll
      for (int i = 0; i < Count; ++i) result.of[half][i] = of_row.of[i];
    }
    return result;
  }
};

/// Prefetches the attention dropout words that the warp will read for a warp tile; the lanes share them.
template <int Width, int HeadSize>
__device__ void prefetch_attention_dropout_mask(const BlockShape& shape, const uint32_t* keep,
                                                const WarpTile& warp_tile, int lane) {
  constexpr int kHeads = Width / HeadSize, kAtOnce = kWarp / 8;  // a head's words of one row take 8 lanes
  const int words = (shape.tokens + 31) >> 5, word = lane % 8;
  const int first_row = max(warp_tile.first_row(), 0);
  if (word < (shape.causal ? warp_tile.number / 2 + 1 : words)) {
#pragma unroll
    for (int first = 0; first < kHeads; first += kAtOnce) {
      const int head = first + lane / 8;
      const int64_t of_word = int64_t{(warp_tile.sequence * kHeads + head) * words + word} * shape.rows;
      if (head < kHeads) prefetch(keep + of_word + first_row);
    }
  }
}

}  // namespace adtrain::kernels::forward_pass
