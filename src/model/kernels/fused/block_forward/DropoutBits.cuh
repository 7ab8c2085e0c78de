#pragma once

#include <cstdint>

#include "model/kernels/fused/BlockTensors.h"
#include "model/kernels/fused/block_forward/Strips.cuh"
#include "model/kernels/gpu/Instructions.cuh"
#include "model/kernels/gpu/Tile.cuh"

/// Dropout's bits on their way from global memory, of which a strip asks early for all that it will read, to
/// the fragments whose elements they keep.
namespace adtrain::kernels::forward_pass {

/// Which pairs of 16-bit values are kept, of the lane's two columns in each 8 of 32: a word's bit is a
/// column.
class KeptPairs {
 public:
  KeptPairs() = default;
  __device__ KeptPairs(uint32_t word, unsigned lane)
      : first_(word << (7 - lane_place(lane).column)), second_(word << (6 - lane_place(lane).column)) {}

  /// The pair in columns 8 · eight + {column, column + 1}, with zeros for what is dropped. Its bits are the
  /// highest of byte `eight`.
  __device__ uint32_t kept(uint32_t pair, int eight) const {
    return pair & pair_mask(first_, second_, eight);
  }

 private:
  uint32_t first_, second_;
};

/// Dropout's words for a few heads and the lane's two rows, a word for 32 keys.
template <int Heads, bool Dropout>
class AttentionWords {
 public:
  /// From `word` of each head on. `head`: the first one's number among all sequences' heads.
  template <class Job>
  __device__ AttentionWords(const Job& job, const Strip& strip, int head, int word) : strip_(strip) {
    const int words_of_head = (job.shape.tokens + 31) >> 5;
    const int first = head * words_of_head + word;
#pragma unroll
    for (int i = 0; i < Heads; ++i) next_[i] = job.attention_keep() + strip.place(first + i * words_of_head);
    load();
  }

  struct Words {
    uint32_t of[Heads][2];
  };
  /// Those of the next 32 keys. `more`: whether others will be asked for; these are on their way from memory
  /// then.
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
        if (strip_.comes_out(half)) words_.of[i][half] = __ldg(next_[i] + 8 * half);
      }
      next_[i] += strip_.rows;
    }
  }

  const Strip& strip_;
  const uint32_t* next_[Heads];
  Words words_ = {};
};
template <int Heads>
class AttentionWords<Heads, false> {
 public:
  template <class Job>
  __device__ AttentionWords(const Job&, const Strip&, int, int) {}
  struct Words {
    uint32_t of[Heads][2];
  };
  __device__ Words next(bool) { return {}; }
};

/// Asks for the bits of the attention that the warp will read for a strip, each lane for some.
template <int Width, int HeadSize>
__device__ void prefetch_attention_bits(const BlockShape& shape, const uint32_t* keep, const Strip& strip,
                                        int lane) {
  constexpr int kHeads = Width / HeadSize, kAtOnce = kWarp / 8;  // the words of as many rows
  const int words = (shape.tokens + 31) >> 5, word = lane % 8;
  const int first_row = max(strip.first_row(), 0);
  if (word < (shape.causal ? strip.number / 2 + 1 : words)) {
#pragma unroll
    for (int first = 0; first < kHeads; first += kAtOnce) {
      const int head = first + lane / 8;
      const int64_t of_word = int64_t{(strip.sequence * kHeads + head) * words + word} * shape.rows;
      if (head < kHeads) prefetch(keep + of_word + first_row);
    }
  }
}

}  // namespace adtrain::kernels::forward_pass
