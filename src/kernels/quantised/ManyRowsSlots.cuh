#pragma once

#include <cstdint>

#include "kernels/primitives/MatrixRows.h"
#include "kernels/primitives/WarpgroupProducts.cuh"
#include "kernels/quantised/Codes.cuh"
#include "kernels/quantised/QuantisedKernels.h"

/// How codes and inputs come to the warpgroups of ManyRows.cu: through slots of shared memory, 64 columns of
/// the sum in each.
///
/// Each slot has a warp of its own that copies into it. What products read of shared memory must be fenced by
/// the thread that copied it, and this fence waits for all that the thread has under way: a thread that fills
/// more than one slot would wait for copies that nobody needs yet.
///
/// Shared memory, up to 160 KiB:
///
///     slots   inputs (rows, 64), swizzled, codes (features, 64 columns), of which rows are 16 bytes
///             apart, so that lanes use different banks, and a pair of equal scales for each feature; at the
///             end the output, to be stored
///     table   of pairs, 32 KiB; not for 8 bits
///     up to 1 KiB before these, so that tiles begin where the swizzle does
namespace adtrain::kernels {

constexpr int kGroupThreads = kWarpsOfGroup * kWarp;
constexpr int kChunk = 16;  ///< bytes that are copied at once

/// What a thread block computes: 64 `Groups` features, each by a warpgroup, of `Rows` rows.
template <int Groups, int Rows, int Slots>
struct TileShape {
  static constexpr int kRows = Rows, kSlots = Slots;
  static constexpr int kFeatures = Groups * kGroupRows, kConsumers = Groups * kGroupThreads,
                       kThreads = kConsumers + Slots * kWarp;
};

/// Which tile a thread block computes, and which steps of 64 columns it sums over.
struct TilePlace {
  int64_t first_feature;
  int first_row, first_step, steps, split;

  template <class Shape>
  __device__ static TilePlace of(const QuantisedProduct& job, int splits, int feature_tiles) {
    const int block = static_cast<int>(blockIdx.x), tile = block / splits, split = block % splits;
    const int all = static_cast<int>(job.weights.in_features) / kBlockColumns;
    const int first = all * split / splits;
    return {int64_t{tile % feature_tiles} * Shape::kFeatures, tile / feature_tiles * Shape::kRows, first,
            all * (split + 1) / splits - first, split};
  }
};

/// Where things are in shared memory.
template <WeightForm kForm, class Shape>
struct ManyRowsMemory {
  static constexpr bool kTable = kForm != WeightForm::kEightBits;
  static constexpr int kInputBytes = Tile<kBlockColumns>::bytes(Shape::kRows);
  static constexpr int kRowCodes = kBlockColumns / (kTable ? 2 : 1), kCodePitch = kRowCodes + kChunk;
  static constexpr int kCodeBytes = Shape::kFeatures * kCodePitch;
  static constexpr int kScaleBytes = kTable ? Shape::kFeatures * static_cast<int>(sizeof(uint32_t)) : 0;
  static constexpr int kSlotBytes =
      (kInputBytes + kCodeBytes + kScaleBytes + kTileAlignment - 1) / kTileAlignment * kTileAlignment;
  static constexpr int kTablePlace = Shape::kSlots * kSlotBytes;
  static constexpr int kBytes = kTablePlace + (kTable ? PairTable::kBytes : 0) + kTileAlignment;
  static_assert(Tile<Shape::kFeatures>::bytes(Shape::kRows) <= kTablePlace);

  char* from;

  __device__ __forceinline__ char* slot(int step) const { return from + step % Shape::kSlots * kSlotBytes; }
  __device__ __forceinline__ Tile<kBlockColumns> inputs(int step) const {
    return {reinterpret_cast<Bf16*>(slot(step))};
  }
  __device__ __forceinline__ char* codes(int step) const { return slot(step) + kInputBytes; }
  __device__ __forceinline__ uint32_t* scales(int step) const {
    return reinterpret_cast<uint32_t*>(slot(step) + kInputBytes + kCodeBytes);
  }
};

/// A warp that fills one slot. Steps are counted from the thread block's first.
template <class Short, WeightForm kForm, class Shape>
class SlotFiller {
  using Memory = ManyRowsMemory<kForm, Shape>;
  static constexpr int kRowsAtOnce = kWarp * kVectorWidth / kBlockColumns;
  static constexpr int kScales = Shape::kFeatures / kWarp;  ///< of a lane

 public:
  __device__ SlotFiller(const QuantisedProduct& job, const TilePlace& place, Memory memory,
                        const float* nested_map)
      : job_(job),
        place_(place),
        memory_(memory),
        nested_map_(nested_map),
        slot_((static_cast<int>(threadIdx.x) - Shape::kConsumers) / kWarp),
        lane_(static_cast<int>(threadIdx.x) % kWarp) {}

  __device__ __forceinline__ void begin() {
    if (slot_ < place_.steps) fetch_weights(slot_);
  }
  /// From the end of kernels ahead until the products have read all slots.
  template <class Barrier>
  __device__ __forceinline__ void run(Barrier&& barrier) {
    if (slot_ < place_.steps) fetch_inputs(slot_);
#pragma unroll 1
    for (int step = 0; step <= place_.steps; ++step) {
      if (step % Shape::kSlots == slot_ && step < place_.steps) finish(step);
      barrier();
      // The step before the one that begins now has been read.
      const int next = step + Shape::kSlots - 2;
      if (next % Shape::kSlots == slot_ && next >= Shape::kSlots && next < place_.steps) {
        fetch_weights(next);
        fetch_inputs(next);
      }
    }
  }

 private:
  __device__ __forceinline__ int64_t column(int step) const {
    return int64_t{place_.first_step + step} * kBlockColumns;
  }
  /// Of features that do not exist the last one: nobody stores their sums.
  __device__ __forceinline__ int64_t existing(int feature) const {
    return min(place_.first_feature + feature, job_.weights.out_features - 1);
  }
  __device__ __forceinline__ void fetch_weights(int step) {
    constexpr int kChunks = Memory::kRowCodes / kChunk, kAtOnce = kWarp / kChunks;
    const int row = lane_ / kChunks, chunk = lane_ % kChunks;
    const int64_t of_feature = job_.weights.in_features / kBlockColumns * Memory::kRowCodes;
    const auto* const from = static_cast<const char*>(job_.weights.codes) +
                             column(step) / kBlockColumns * Memory::kRowCodes + chunk * kChunk;
    char* const to = memory_.codes(step) + row * Memory::kCodePitch + chunk * kChunk;
#pragma unroll 2
    for (int i = 0; i < Shape::kFeatures; i += kAtOnce)
      start_copy(to + i * Memory::kCodePitch, from + existing(row + i) * of_feature);
    if constexpr (Memory::kTable) {
#pragma unroll
      for (int i = 0; i < kScales; ++i) {
        scales_[i] = StoredScale<kForm>::load(
            job_.weights,
            block_of(job_.weights, existing(kWarp * i + lane_), static_cast<int>(column(step))));
      }
    }
  }
  /// Rows that do not exist are cleared.
  __device__ __forceinline__ void fetch_inputs(int step) const {
    constexpr int kChunks = kBlockColumns / kVectorWidth;
    const int row = lane_ / kChunks, of_row = kVectorWidth * (lane_ % kChunks);
    const int64_t width = job_.weights.in_features;
    const auto* const from =
        static_cast<const Bf16*>(job_.input) + (place_.first_row + row) * width + column(step) + of_row;
    const Tile<kBlockColumns> tile = memory_.inputs(step);
#pragma unroll 4  // addresses of more take registers from the warps that multiply
    for (int i = 0; i < Shape::kRows; i += kRowsAtOnce) {
      const bool exists = place_.first_row + row + i < job_.rows;
      start_copy_or_clear(tile.at(row + i, of_row),
                          exists ? from + i * width : static_cast<const Bf16*>(job_.input), exists);
    }
  }
  /// Makes what was fetched visible to products; a barrier must follow.
  __device__ __forceinline__ void finish(int step) const {
    if constexpr (Memory::kTable) {
#pragma unroll
      for (int i = 0; i < kScales; ++i) {
        const float scale = scales_[i].value(job_.weights, nested_map_);
        memory_.scales(step)[kWarp * i + lane_] = packed<Short>(scale, scale);
      }
    }
    copies_arrived();
    show_to_products();
  }

  const QuantisedProduct& job_;
  const TilePlace& place_;
  const Memory memory_;
  const float* const nested_map_;
  const int slot_, lane_;
  StoredScale<kForm> scales_[kScales];  ///< of the step that is under way
};

}  // namespace adtrain::kernels
