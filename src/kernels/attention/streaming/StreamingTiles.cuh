#pragma once

#include <cmath>
#include <cstdint>
#include <stdexcept>
#include <type_traits>

#include "kernels/attention/AlibiSlope.cuh"
#include "kernels/attention/GroupTile.cuh"
#include "kernels/attention/MultiheadAttention.h"
#include "kernels/primitives/Instructions.cuh"
#include "kernels/primitives/ShortTile.cuh"
#include "kernels/primitives/ShortType.cuh"
#include "kernels/primitives/TensorMap.h"
#include "kernels/primitives/Tile.cuh"
#include "kernels/primitives/TransferInstructions.cuh"
#include "kernels/primitives/WarpgroupProducts.cuh"

/// How a thread block goes through a long sequence. It is one warpgroup and owns 64 rows of a head, 16 a
/// warp. The rows that they read or that read them (keys for queries, queries for keys) stream by in stages
/// of 64 rows, and the next stage is being copied meanwhile. Several thread blocks share a multiprocessor:
/// while one computes weights, the tensor cores work for another.
namespace adtrain::kernels::streaming_attention_pass {

constexpr int kPassingRows = 64;
constexpr int kPassingEights = kPassingRows / 8, kPassingSteps = kPassingRows / 16;
constexpr int kOwnRows = kGroupRows, kThreads = kOwnRows / kWarpTile * kWarp;
static_assert(kOwnRows == kPassingRows, "own rows and one stage make the diagonal");
static_assert(kThreads == kOwnRows * kPassingRows / 32, "a thread copies one of a stage's dropout words");

/// The rows that stream by, against the warp's own 16: sums of products, and what they become.
using PassingSums = Sums[kPassingEights];
using PassingFragments = LeftFragment[kPassingSteps];

/// Writes `hidden` over what the lane has, in its two rows, of keys before these, which are counted from the
/// stage's key of its first column.
__device__ __forceinline__ void hide_before(PassingSums& sums, int2 begin, float hidden) {
#pragma unroll
  for (int i = 0; i < 4 * kPassingEights; ++i) {
    const int key = i / 4 * 8 + i % 2, half = i / 2 % 2;
    if (key < (half == 0 ? begin.x : begin.y)) sums[i / 4].value[i % 4] = hidden;
  }
}

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

/// The same call, knowing what its arrays have of a sequence: where that is not said, its own rows.
inline MultiheadAttention with_rows_around(const MultiheadAttention& attention) {
  const BlockShape& shape = attention.shape;
  MultiheadAttention own = attention;
  if (own.around.rows == 0) own.around = {shape.rows, shape.attention_rows().row_words(), shape.tokens};
  return own;
}
/// The layout of the attention output and of its gradient.
template <int HeadSize, class Value>
__host__ __device__ HeadMatrix<Value> output_rows(Value* data, const MultiheadAttention& attention) {
  const int width = attention.shape.width;
  return {data, int64_t{attention.around.rows} * width, width, HeadSize};
}

/// The row in arrays over the last `rows` tokens of the query of `token`.
__device__ inline int row_of(const BlockShape& shape, int token) {
  return token - (shape.tokens - shape.rows);
}

/// The map of a matrix's first `rows` rows, of which tiles of kPassingRows rows are copied.
template <int HeadSize, class Value>
TensorMap map_of(const HeadMatrix<Value>& matrix, const BlockShape& shape, int rows) {
  constexpr int kBytes = static_cast<int>(sizeof(Bf16));
  return tensor_map(
      {matrix.data, kBytes * HeadSize, rows, shape.heads, shape.sequences, int64_t{kBytes} * matrix.of_row,
       int64_t{kBytes} * matrix.of_head, kBytes * matrix.of_sequence},
      kPassingRows);
}

/// Starts to copy a tile of the own head's rows, from row `first` on. Rows that do not exist are cleared. By
/// one thread, which then arrives at the barrier.
template <int HeadSize>
__device__ void start_copy_rows(Tile<HeadSize> tile, const TensorMap& map, const OwnRows& own, int first,
                                TransferBarrier& arrived) {
  arrived.expect(Tile<HeadSize>::bytes(kPassingRows));
  start_head_copy(tile.data, map, first, own.head, own.sequence, arrived);
}

constexpr int kStages = 2;  ///< in shared memory: one that is read, and the next one

/// The barriers of a thread block's transfers, in shared memory.
struct Arrivals {
  static constexpr int kBytes = 32;  ///< what follows is aligned to 16 bytes, too

  TransferBarrier own_rows, stages[kStages];

  /// Sets the barriers up and calls start(own_rows), which starts to copy the own rows, in one of the threads
  /// that call it. A barrier of the block must follow.
  template <class Start>
  __device__ void begin(Start&& start) {
    if (threadIdx.x != 0) return;
    own_rows.set_up(1);
    for (TransferBarrier& stage : stages) stage.set_up(1);
    show_barriers_to_copies();
    start(own_rows);
    own_rows.arrive();
  }
};
static_assert(sizeof(Arrivals) <= Arrivals::kBytes);

/// The rows of two matrices that stream by. A stage is awaited before the one after it is copied.
template <int HeadSize>
class PassingRows {
 public:
  /// `first`: the row of the first token, which may be before 0.
  __device__ PassingRows(const TensorMap& one, const TensorMap& other, const OwnRows& own, int first,
                         Arrivals& arrivals)
      : one_(one), other_(other), own_(own), first_(first), arrivals_(arrivals) {}

  /// Starts to copy the stage. One of the threads that call it does so.
  __device__ void start_copy(int stage, Tile<HeadSize> one, Tile<HeadSize> other) const {
    if (threadIdx.x != 0) return;
    TransferBarrier& arrived = arrivals_.stages[stage % kStages];
    const int row = first_ + kPassingRows * stage;
    start_copy_rows(one, one_, own_, row, arrived);
    start_copy_rows(other, other_, own_, row, arrived);
    arrived.arrive();
  }
  /// Waits for the stage, by all threads.
  __device__ void await(int stage) {
    const int place = stage % kStages;
    arrivals_.stages[place].await(phases_ >> place);
    phases_ ^= 1 << place;
  }

 private:
  const TensorMap &one_, &other_;
  const OwnRows& own_;
  const int first_;
  Arrivals& arrivals_;
  int phases_ = 0;  ///< a bit for each place
};

/// Starts to copy a dropout word a thread (words, kOwnRows): of the rows from `first_row` on and of the keys
/// from `first_key` on. For rows or words that do not exist, it copies others.
__device__ inline void start_copy_words(uint32_t* to, const MultiheadAttention& job, const OwnRows& own,
                                        int first_row, int first_key) {
  const int thread = static_cast<int>(threadIdx.x);
  const int row = min(max(first_row + thread % kOwnRows, 0), job.shape.rows - 1);
  const int word = min((first_key >> 5) + thread / kOwnRows, own.last_word);
  start_copy_word(to + thread,
                  job.keep + (int64_t{own.number} * job.around.words + word) * job.around.rows + row);
}

template <bool Value>
struct FlagOf {
  static constexpr bool kValue = Value;
};

/// Calls take(FlagOf<value>).
template <class Take>
void with_flag(bool value, Take&& take) {
  if (value) return take(FlagOf<true>());
  take(FlagOf<false>());
}

/// Calls launch(Short(), head_size) with the type of the attention's elements, and with the size of its heads
/// as an std::integral_constant. Throws std::logic_error for heads of other sizes.
template <class Launch>
void with_kind(const MultiheadAttention& attention, Launch&& launch) {
  with_type(attention.type, [&](auto type) {
    switch (attention.shape.width / attention.shape.heads) {
      case 16:
        return launch(type, std::integral_constant<int, 16>());
      case 32:
        return launch(type, std::integral_constant<int, 32>());
      case 64:
        return launch(type, std::integral_constant<int, 64>());
      default:
        throw std::logic_error("Keys and values are streamed for heads of 16, 32 and 64.");
    }
  });
}

/// Calls launch(dropout, alibi, segmented) with FlagOf what the attention has.
template <class Launch>
void with_flags(const MultiheadAttention& attention, Launch&& launch) {
  with_flag(attention.keep != nullptr, [&](auto dropout) {
    with_flag(attention.alibi.first_keys != nullptr, [&](auto alibi) {
      with_flag(attention.segments.first != nullptr || attention.shape.first != nullptr,
                [&](auto segmented) { launch(dropout, alibi, segmented); });
    });
  });
}

/// Which bound of a segment: its first token, or what is behind its last one.
enum class Bound { kFirst, kEnd };

/// A bound of the segments of the own rows. It ascends with the rows. For rows that do not exist, it is as
/// for the last one. The padding in front of a sequence is a segment, and what follows is another.
template <Bound kBound>
struct SegmentBounds {
  static constexpr int kBytes = kOwnRows * static_cast<int>(sizeof(int));

  /// Puts them in shared memory. A barrier must follow.
  __device__ static void copy(int* to, const MultiheadAttention& attention, const OwnRows& own) {
    const int row = static_cast<int>(threadIdx.x);
    if (row < kOwnRows) to[row] = of(attention, own, row);
  }
  /// Of one row.
  __device__ static int of(const MultiheadAttention& attention, const OwnRows& own, int row) {
    const int tokens = attention.shape.tokens, token = min(own.first + row, tokens - 1);
    if (attention.shape.first != nullptr) {
      const int first = attention.shape.first[own.sequence];
      if (kBound == Bound::kFirst) return token < first ? 0 : first;
      return token < first ? first : tokens;
    }
    const PackedSegments& packed = attention.segments;
    const int* const of_tokens = kBound == Bound::kFirst ? packed.first : packed.end;
    return of_tokens[int64_t{own.sequence} * tokens + token];
  }
};

/// The length of a head's longest row. For kThreads threads.
template <class Short, int HeadSize>
__device__ float longest_row(const HeadMatrix<const Bf16>& matrix, int sequence, int head, int rows) {
  constexpr int kChunks = HeadSize / 8, kAtOnce = kThreads / kChunks, kWarps = kThreads / kWarp;
  const int chunk = threadIdx.x % kChunks;
  float longest = 0.0f;
#pragma unroll 4
  for (int first = 0; first < rows; first += kAtOnce) {
    const int row = min(first + static_cast<int>(threadIdx.x) / kChunks, rows - 1);
    const Bf16* from = matrix.at(sequence, row, head) + 8 * chunk;
    const ChunkValues values = ChunkValues::of<Short>(__ldg(reinterpret_cast<const uint4*>(from)));
    const float square = head_sum<HeadSize>(values.product_with(values));
    longest = fmaxf(longest, square);
  }
  __shared__ float of_warps[kWarps];
  longest = std::sqrt(warp_max(longest));
  if (threadIdx.x % kWarp == 0) of_warps[threadIdx.x / kWarp] = longest;
  __syncthreads();
#pragma unroll
  for (const float other : of_warps) longest = fmaxf(longest, other);
  return longest;
}

/// The stage that has the positions of the own rows, so that each row reads, or is read by, a different part
/// of it.
__device__ inline int diagonal_stage(const OwnRows& own) {
  return own.first / kPassingRows;
}

/// The place in first_keys of the block of tokens that `token` is in.
__device__ inline int* first_key(const MultiheadAttention& job, const OwnRows& own, int token) {
  return job.alibi.first_keys + own.number * AlibiReach::blocks(job.shape.tokens) +
         token / AlibiReach::kReachRows;
}

/// Writes the sums of a warp tile, times `scale`, to the rows from `first` on that are in [begin, end). The
/// warp reorders them in `tile`, 16 rows.
template <class Short, int HeadSize>
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
      rounded.part[part] = packed<Short>(scale[part % 2] * value[0], scale[part % 2] * value[1]);
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
