#include "base/Launch.cuh"
#include "kernels/attention/GroupTile.cuh"
#include "kernels/attention/resident/ResidentAttention.h"
#include "kernels/attention/resident/ResidentVariants.cuh"
#include "kernels/attention/resident/forward/ForwardAttention.cuh"
#include "kernels/attention/resident/forward/Memory.cuh"
#include "kernels/attention/resident/forward/Sequence.cuh"
#include "kernels/attention/resident/forward/WarpTiles.cuh"
#include "kernels/primitives/Instructions.cuh"
#include "kernels/primitives/Tile.cuh"
#include "kernels/rope/RopeAngles.cuh"

/// The forward pass of resident-KV attention. A thread block takes 32 columns of heads of one sequence and
/// copies their keys and values to shared memory. Its warps take warp tiles of 16 queries of one head (of two
/// heads of 8), the warp tiles with the most keys first. Several thread blocks share a multiprocessor, in
/// different phases. A warp tile attends as in whole blocks; see HeadsRead. Warp tiles of padding read
/// nothing, and their output is 0.
///
/// Shared memory, 32.1 KiB:
///
///     keys, values  (256, 32), 16 KiB each: rotated, where there is rope
///     longest       (8), fp32: the greatest |key|² of each head
namespace adtrain::kernels::forward_pass {

/// A block whose projections are computed elsewhere. Padded: sequences may begin with padding.
template <bool Padded>
struct StoredHeads {
  static constexpr bool kPadded = Padded;

  struct Job : MultiheadAttention {
    __device__ const uint32_t* attention_keep() const { return keep; }
    __device__ float attention_scale() const { return scale; }
    __device__ float* lse() const { return MultiheadAttention::lse; }
    __host__ __device__ int groups() const { return shape.width / kGroupColumns; }
  };

  /// The rotation of a warp tile of queries or keys; none where the job has no angles.
  template <int HeadSize>
  class Rotary {
   public:
    __device__ Rotary(const Job& job, int first, unsigned) : job_(job), first_(first) {}

    template <int Eights>
    __device__ void rotate(Sums (&sums)[Eights]) const {
      using Angles = RopeAngles<HeadSize>;
      if (job_.cosines != nullptr) {
        Angles::of(job_.cosines, job_.sines, first_, job_.shape.tokens, 1.0f).apply(sums);
      }
    }

   private:
    const Job& job_;
    int first_;
  };

  /// The address of the lane's first output row. `warp_tile.sequence` counts groups of heads.
  template <int Width, class Sequence>
  static __device__ Bf16* output_of(const Sequence& sequence, const WarpTile& warp_tile) {
    const Job& job = sequence.job;
    const int group = warp_tile.sequence - sequence.number * job.groups();
    return job.attention_output +
           (int64_t{sequence.number} * job.shape.rows + warp_tile.row) * job.shape.width + Width * group;
  }
  template <int Width>
  static __device__ int row_of_output(const Job& job) {
    return job.shape.width;
  }
};

template <bool Padded, int Width>
struct Memory<StoredHeads<Padded>, Width> {
  Tile<Width> keys, values;
  float* longest;

  static constexpr int bytes() {
    return 2 * Tile<Width>::bytes(kMostTokens) + kMostHeads * static_cast<int>(sizeof(float));
  }

  __device__ explicit Memory(char* start) {
    FreeMemory memory = {start};
    keys = {memory.take<Bf16>(kMostTokens * Width)};
    values = {memory.take<Bf16>(kMostTokens * Width)};
    longest = memory.take<float>(kMostHeads);
  }
};

namespace {

constexpr int kWarps = 4;
template <bool Padded>
using GroupSequence = Sequence<StoredHeads<Padded>, kGroupColumns>;

/// A warp tile's own queries, keys and values in global memory.
template <int HeadSize>
class WarpTileInMemory {
 public:
  __device__ WarpTileInMemory(const MultiheadAttention& job, const HeadGroup<HeadSize>& group,
                              const WarpTile& warp_tile)
      : job_(job), group_(group), warp_tile_(warp_tile) {}

  /// Loads the lane's elements of a group's columns from `column` on. Rows that are not output are 0.
  template <int Eights>
  __device__ void load(Sums (&sums)[Eights], int third, int column, unsigned lane) const {
    const MultiheadAttention::Heads& from = third == 0 ? job_.queries : third == 1 ? job_.keys : job_.values;
    // Queries exist for the last rows only.
    const int before = third == 0 ? 0 : job_.shape.length() - job_.shape.rows;
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const int row = warp_tile_.row + 8 * half;
#pragma unroll
      for (int eight = 0; eight < Eights; ++eight) {
        uint32_t pair = 0;
        if (warp_tile_.comes_out(half)) {
          const Bf16* at = group_.at(from, before + row, column + 8 * eight) + lane_place(lane).column;
          pair = __ldg(reinterpret_cast<const uint32_t*>(at));
        }
        const float2 both = unpacked(pair);
        sums[eight].value[2 * half] = both.x;
        sums[eight].value[2 * half + 1] = both.y;
      }
    }
  }

 private:
  const MultiheadAttention& job_;
  const HeadGroup<HeadSize>& group_;
  const WarpTile& warp_tile_;
};

/// Starts to copy the first stream's keys and values.
template <int HeadSize, bool Padded>
__device__ void fetch_keys_and_values(const GroupSequence<Padded>& sequence,
                                      const HeadGroup<HeadSize>& group) {
  const BlockShape& shape = sequence.job.shape;
  const int warp_tiles = (shape.tokens + kWarpTile - 1) / kWarpTile;
  start_copy(sequence.memory.keys, warp_tiles, sequence.job.keys, group, 0, 0, shape.tokens);
  start_copy(sequence.memory.values, warp_tiles, sequence.job.values, group, 0, 0, shape.tokens);
}

/// Rotates this thread's chunks of keys, if there is rope, and finds the greatest |key|² of each head.
template <int HeadSize, bool Padded>
__device__ void settle_keys(const GroupSequence<Padded>& sequence) {
  const auto& job = sequence.job;
  const int tokens = job.shape.tokens, warp_tiles = (tokens + kWarpTile - 1) / kWarpTile;
  float longest = 0.0f;
  Chunk::for_each(warp_tiles, [&](Chunk chunk) {
    uint4* at = reinterpret_cast<uint4*>(sequence.memory.keys.at(chunk.row, chunk.column));
    ChunkValues values = ChunkValues::of(*at);
    if (job.cosines != nullptr) {
      values.rotate<HeadSize>(job.cosines, job.sines, min(chunk.row, tokens - 1), chunk.column);
      *at = values.rounded();
    }
    longest = fmaxf(longest, head_sum<HeadSize>(values.product_with(values)));
  });
#pragma unroll
  for (int apart = kGroupChunks; apart < kWarp; apart *= 2) {
    longest = fmaxf(longest, __shfl_xor_sync(kAllLanes, longest, apart));
  }
  const int lane = threadIdx.x % kWarp;
  if (lane < kGroupChunks) {  // non-negative floats have the order of their bits
    unsigned* of_head = reinterpret_cast<unsigned*>(sequence.memory.longest) + 8 * lane / HeadSize;
    atomicMax(of_head, __float_as_uint(longest));
  }
}

/// A warp tile and its columns of heads. Units are ordered by their number of keys, which is greater for
/// later tokens. Where both streams have output rows, their warp tiles alternate.
template <int HeadSize, bool Streams>
struct Unit {
  static constexpr int kColumns = HeadSize < 16 ? 16 : HeadSize;
  static constexpr int kOfWarpTile = kGroupColumns / kColumns;

  __device__ static int count(const BlockShape& shape) {
    const int warp_tiles = (shape.tokens + kWarpTile - 1) / kWarpTile;
    return (both(shape) ? 2 * warp_tiles : warp_tiles) * kOfWarpTile;
  }
  /// Unit `number`. `block` is the thread block's number in the launch.
  __device__ Unit(const BlockShape& shape, int block, int number)
      : column(number % kOfWarpTile * kColumns),
        warp_tile(shape, block, is_second(shape, number / kOfWarpTile),
                  (shape.tokens - 1) / kWarpTile - number / kOfWarpTile / (both(shape) ? 2 : 1)) {}

  int column;
  WarpTile warp_tile;

 private:
  __device__ static bool both(const BlockShape& shape) { return Streams && shape.rows > shape.queries; }
  __device__ static bool is_second(const BlockShape& shape, int place) {
    return Streams && (!both(shape) || place % 2 == 0);
  }
};

/// Sets the output of padding to 0; nothing depends on it.
template <class OwnUnit, class Sequence>
__device__ void clear_read(const Sequence& sequence, const OwnUnit& unit) {
  const WarpTile& warp_tile = unit.warp_tile;
  Bf16* const to =
      StoredHeads<true>::output_of<kGroupColumns>(sequence, warp_tile) + unit.column + lane_place().column;
#pragma unroll
  for (int half = 0; half < 2; ++half) {
#pragma unroll
    for (int eight = 0; eight < OwnUnit::kColumns; eight += 8) {
      uint32_t* at = reinterpret_cast<uint32_t*>(to + 8 * half * sequence.job.shape.width + eight);
      if (warp_tile.comes_out(half)) *at = 0;
    }
  }
}

template <int HeadSize, bool Dropout, bool Streams, bool Padded>
__global__ void __launch_bounds__(kWarps* kWarp, HeadSize == 16 ? 6 : 5)
    resident_attention_kernel(const __grid_constant__ typename StoredHeads<Padded>::Job job) {
  using Heads = HeadsRead<StoredHeads<Padded>, kGroupColumns, HeadSize, Dropout, Streams>;
  using OwnUnit = Unit<HeadSize, Streams>;
  const Memory<StoredHeads<Padded>, kGroupColumns> memory(dynamic_shared_memory());
  const auto group = HeadGroup<HeadSize>::of(job.shape, blockIdx.x);
  const int warp = threadIdx.x / kWarp;
  const GroupSequence<Padded> sequence = {job, memory, group.sequence, warp, 0};
  fetch_keys_and_values(sequence, group);
  if (threadIdx.x < kMostHeads) memory.longest[threadIdx.x] = 0.0f;
  copies_arrived();
  __syncthreads();
  settle_keys<HeadSize>(sequence);
  __syncthreads();

  const int units = OwnUnit::count(job.shape);
#pragma unroll 1
  for (int first = 0, turn = 0; first < units; first += kWarps, ++turn) {  // warps alternate their order
    const int number = first + (turn % 2 == 0 ? warp : kWarps - 1 - warp);
    if (number >= units) continue;
    const OwnUnit unit(job.shape, blockIdx.x, number);
    if (!unit.warp_tile.exists()) continue;
    if constexpr (Padded) {
      if (sequence.pads(unit.warp_tile)) {
        clear_read(sequence, unit);
        continue;
      }
    }
    const WarpTileInMemory<HeadSize> own(job, group, unit.warp_tile);
    Heads heads(sequence, unit.warp_tile, unit.column);
    heads.compute_queries(own);
    heads.attend(own);
    LeftFragment output[Heads::kSteps];
    heads.finish(output);
  }
}

struct Forward {
  template <int HeadSize, bool Dropout, bool Streams, bool Padded>
  static void launch(const MultiheadAttention& attention, cudaStream_t stream) {
    const typename StoredHeads<Padded>::Job job = {attention};
    gpu::launch("resident_attention_kernel", resident_attention_kernel<HeadSize, Dropout, Streams, Padded>,
                job.shape.sequences * job.groups(), kWarps * kWarp,
                Memory<StoredHeads<Padded>, kGroupColumns>::bytes(), stream, job);
  }
};

}  // namespace
}  // namespace adtrain::kernels::forward_pass

namespace adtrain::kernels {

void resident_attention(const MultiheadAttention& attention, cudaStream_t stream) {
  launch_variant<forward_pass::Forward>(attention, attention, stream);
}

}  // namespace adtrain::kernels
