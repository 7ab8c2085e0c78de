#pragma once

#include <cstdint>
#include <type_traits>

#include "kernels/attention/AlibiSlope.cuh"
#include "kernels/attention/MultiheadAttention.h"
#include "kernels/primitives/Instructions.cuh"
#include "kernels/primitives/Tile.cuh"

/// How a thread block goes through a long sequence. It owns 128 rows of a head. Each warp owns 32 of them, as
/// two warp tiles, so that each fragment from shared memory serves twice. The rows that they read or that
/// read them (keys for queries, queries for keys) stream by in stages of 64 rows, and the next stage is being
/// copied meanwhile.
namespace adtrain::kernels::streaming_attention_pass {

constexpr int kWarps = 4, kThreads = kWarps * kWarp;
constexpr int kOwnRows = 128, kPassingRows = 64;
constexpr int kWarpTiles = 2;                      ///< of a warp
constexpr int kWarpRows = kWarpTiles * kWarpTile;  ///< equal to the bits of a dropout word
constexpr int kStepRows = 32;                      ///< streamed rows that are processed at a time
constexpr int kPassingWords = kOwnRows * kPassingRows / 32;
static_assert(kOwnRows == AlibiReach::kReachRows);

/// What a thread block owns.
enum class Own { kQueries, kKeys };

/// The rows that a thread block owns.
struct OwnRows {
  int sequence, head;
  int number;  ///< of the head among the heads of all sequences
  int first;
  int last_word;   ///< index of the last dropout word
  int begin, end;  ///< the stages of the rows that stream by
};

/// The order of thread blocks. Neighbouring thread blocks share so many heads that these heads' keys and
/// values stay in the L2 cache. Among these, the rows with the most work come first.
struct BlockOrder {
  int heads;                    ///< of a sequence
  int all_heads;                ///< of all sequences
  int together;                 ///< heads that neighbouring thread blocks share
  int last_word;                ///< index of the last dropout word
  int first_block, row_blocks;  ///< of a head: the first row block, and their number

  /// For the rows from token `first` on.
  static BlockOrder of(const BlockShape& shape, int first) {
    constexpr int64_t kCached = int64_t{16} << 20;
    const int64_t of_head = int64_t{4} * shape.tokens * (shape.width / shape.heads);
    const int64_t together = kCached / of_head;
    return {shape.heads,
            shape.sequences * shape.heads,
            static_cast<int>(together < 1 ? 1 : together),
            (shape.tokens - 1) / 32,
            first / kOwnRows,
            (shape.tokens + kOwnRows - 1) / kOwnRows - first / kOwnRows};
  }
  int blocks() const { return all_heads * row_blocks; }

  /// The rows of thread block `block`. The last queries have the most work, and so do the first keys.
  template <Own kOwn>
  __device__ OwnRows rows(int block, const BlockShape& shape) const {
    const int before = block / (together * row_blocks) * together, within = block - before * row_blocks;
    const int neighbours = min(together, all_heads - before);
    const int number = before + within % neighbours, turn = within / neighbours;
    const int row_block = kOwn == Own::kQueries ? row_blocks - 1 - turn : turn;
    const int first = (first_block + row_block) * kOwnRows;
    const int begin = kOwn == Own::kKeys ? max(first, shape.tokens - shape.rows) / kPassingRows : 0;
    const int end = kOwn == Own::kKeys ? shape.tokens : min(first + kOwnRows, shape.tokens);
    return {number / heads,
            number % heads,
            number,
            first,
            last_word,
            begin,
            (end + kPassingRows - 1) / kPassingRows};
  }
};

/// The thread's number in the block, with the lane from lane_anew().
__device__ inline int thread_anew() {
  return (threadIdx.x & ~(kWarp - 1)) + lane_anew();
}

/// The row in arrays over the last `rows` tokens of the query of `token`.
__device__ inline int row_of(const BlockShape& shape, int token) {
  return token - (shape.tokens - shape.rows);
}

/// Starts to copy `Rows` rows from `first` on. Rows before 0 and from `end` on are cleared. `thread`: from
/// thread_anew(), so that the addresses do not occupy registers that others need.
template <int Rows, int HeadSize>
__device__ void start_copy_rows(Tile<HeadSize> tile, const HeadMatrix<const Bf16>& matrix, const OwnRows& own,
                                int first, int end, int thread) {
  constexpr int kChunks = HeadSize / 8, kAtOnce = kThreads / kChunks;
  const int row = thread / kChunks, column = 8 * (thread % kChunks);
  const Bf16* from = matrix.at(own.sequence, first + row, own.head) + column;
#pragma unroll
  for (int i = 0; i < Rows; i += kAtOnce) {
    start_copy_or_clear(from_row(tile, i).at(row, column), from,
                        first + i + row >= 0 && first + i + row < end);
    from += kAtOnce * matrix.of_row;
  }
}

/// Starts to copy kPassingWords dropout words (words, Rows): of `Rows` rows from `first_row` on and of the
/// keys from `first_key` on. For rows or words that do not exist, it copies others.
template <int Rows>
__device__ void start_copy_words(uint32_t* to, const MultiheadAttention& job, const OwnRows& own,
                                 int first_row, int first_key, int thread) {
#pragma unroll
  for (int i = 0; i < kPassingWords; i += kThreads) {
    const int row = min(max(first_row + (i + thread) % Rows, 0), job.shape.rows - 1);
    const int word = min((first_key >> 5) + (i + thread) / Rows, own.last_word);
    start_copy_word(to + i + thread,
                    job.keep + (int64_t{own.number} * (own.last_word + 1) + word) * job.shape.rows + row);
  }
}

/// The stage with which the thread block begins: the one next to its own rows.
template <Own kOwn>
__device__ int nearest_stage(const OwnRows& own) {
  return kOwn == Own::kKeys ? own.begin : own.end - 1;
}

template <bool Value>
struct FlagOf {
  static constexpr bool kValue = Value;
};

/// Calls launch(dropout, alibi) with FlagOf what the attention has.
template <class Launch>
void with_flags(const MultiheadAttention& attention, Launch&& launch) {
  const auto with_alibi = [&](auto dropout) {
    if (attention.alibi.first_keys != nullptr) {
      launch(dropout, FlagOf<true>());
    } else {
      launch(dropout, FlagOf<false>());
    }
  };
  if (attention.keep != nullptr) {
    with_alibi(FlagOf<true>());
  } else {
    with_alibi(FlagOf<false>());
  }
}

/// Reads every stage.
struct ReadsAll {
  __device__ bool operator()(int) const { return true; }
};

/// Goes through the streamed rows that the warp's rows read, or are read by, away from its own:
/// take(block, step, diagonal) for 32 rows at a time. `diagonal`, a FlagOf, is true where they have the same
/// positions as the warp's own rows, so that each row takes a different part. fetch(block) starts to copy a
/// stage of 64 rows. The nearest stage must already have been fetched. It ends before a stage for which
/// reads(block) is true in no thread, and returns the last stage that was read.
template <Own kOwn, class Fetch, class Take, class Reads = ReadsAll>
__device__ int meet_passing_rows(const OwnRows& own, Fetch&& fetch, Take&& take, Reads&& reads = {}) {
  static_assert(kWarpRows == kStepRows);
  constexpr int kSteps = kPassingRows / kStepRows, kOn = kOwn == Own::kKeys ? 1 : -1;
  const auto exists = [&](int block) {  // from shared memory each time, because registers are scarce
    return kOwn == Own::kKeys ? block < own.end : block >= own.begin;
  };
  int block = nearest_stage<kOwn>(own);
#pragma unroll 1
  for (; exists(block); block += kOn) {
    copies_arrived();
    if constexpr (std::is_same_v<std::decay_t<Reads>, ReadsAll>) {
      __syncthreads();
    } else if (__syncthreads_or(reads(block)) == 0) {
      break;
    }
    if (exists(block + kOn)) fetch(block + kOn);
#pragma unroll 1
    for (int step = 0; step < kSteps; ++step) {
      const int behind =
          block * kSteps + step - own.first / kStepRows - static_cast<int>(threadIdx.x) / kWarp;
      const int apart = kOwn == Own::kKeys ? behind : -behind;
      if (apart > 0) take(block, step, FlagOf<false>());
      if (apart == 0) take(block, step, FlagOf<true>());
    }
  }
  return block - kOn;
}

/// The place in first_keys of the block of tokens from `first` on.
__device__ inline int* first_key(const MultiheadAttention& job, const OwnRows& own, int first) {
  return job.alibi.first_keys + own.number * AlibiReach::blocks(job.shape.tokens) + first / kOwnRows;
}

/// Writes the sums of a warp tile, times `scale`, to the rows from `first` on that are in [begin, end). The
/// warp reorders them in `tile`, 16 rows.
template <int HeadSize>
__device__ void store_warp_tile(const HeadMatrix<Bf16>& to, const OwnRows& own, int first, int begin, int end,
                                Tile<HeadSize> tile, const Sums (&sums)[HeadSize / 8],
                                const float (&scale)[2]) {
  const unsigned lane = lane_anew();
  constexpr int kChunks = HeadSize / 8, kAtOnce = kWarp / kChunks;
#pragma unroll
  for (int step = 0; step < HeadSize / 16; ++step) {
    LeftFragment rounded;
#pragma unroll
    for (int part = 0; part < 4; ++part) {
      const float* value = sums[2 * step + part / 2].value + 2 * (part % 2);
      rounded.part[part] = packed(scale[part % 2] * value[0], scale[part % 2] * value[1]);
    }
    set_left(tile, 0, 16 * step, rounded, lane);
  }
  __syncwarp();
  const int row = lane / kChunks, column = 8 * (lane % kChunks);
#pragma unroll
  for (int i = 0; i < kWarpTile; i += kAtOnce) {
    if (first + row + i >= begin && first + row + i < end) {
      *reinterpret_cast<uint4*>(to.at(own.sequence, first + row + i, own.head) + column) =
          *reinterpret_cast<const uint4*>(tile.at(row + i, column));
    }
  }
}

}  // namespace adtrain::kernels::streaming_attention_pass
