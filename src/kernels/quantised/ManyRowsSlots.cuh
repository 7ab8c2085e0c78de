#pragma once

#include <cstdint>

#include "kernels/primitives/EarlyStart.cuh"
#include "kernels/primitives/MatrixRows.h"
#include "kernels/primitives/TransferInstructions.cuh"
#include "kernels/primitives/WarpgroupProducts.cuh"
#include "kernels/quantised/Codes.cuh"
#include "kernels/quantised/QuantisedKernels.h"

/// How codes and inputs come to the warpgroups of ManyRows.cu: through slots of shared memory, 64 columns of
/// the sum in a slot of inputs and 128 bytes of each feature in a slot of codes. A slot's copy is one
/// instruction of one thread, and nobody meets in a barrier of the block: each slot has one TransferBarrier
/// that says it is full, and one of inputs also one that says it has been read. A multiprocessor copies about
/// one row of a box in three cycles, however short, so that rows of codes are as long as they can be.
///
/// Shared memory, up to 198 KiB:
///
///     inputs    slots of (rows, 64), swizzled
///     codes     slots of (features, 128 bytes), swizzled
///     table     of pairs, 32 KiB; not for 8 bits
///     scales    a pair of equal ones for each feature, as many times as there are slots of inputs; not for 8
///               bits
///     map       of nested scales, 1 KiB, where there are any
///     barriers  two a slot of inputs, one a slot of codes, and one
///
/// When all slots have been read: before the scales what the other part has summed; at the beginning what
/// other blocks have summed, and then the sums (rows, features) in fp32, whose rows are 16 bytes apart, so
/// that lanes use different banks.
namespace adtrain::kernels {

constexpr int kGroupThreads = kWarpsOfGroup * kWarp;
constexpr int kChunk = 16;               ///< bytes that swizzles keep together
constexpr int kSwizzled = 8 * kChunk;    ///< bytes of a row that they exchange
constexpr int kFillers = kWarpsOfGroup;  ///< warps that fill slots

/// What a thread block computes: 128 features, each half of them by a warpgroup, of `Rows` rows. With two
/// `Parts` two more warpgroups take every second step, as one that waits for its operands or for a product
/// leaves the tensor cores idle.
template <int Rows, int Slots, int Parts>
struct TileShape {
  static constexpr int kRows = Rows, kSlots = Slots, kParts = Parts;
  static_assert(Slots % Parts == 0, "a slot belongs to a part");
  static constexpr int kFeatures = 2 * kGroupRows, kPartThreads = 2 * kGroupThreads,
                       kConsumers = Parts * kPartThreads, kThreads = kConsumers + kFillers * kWarp;
  static constexpr int kRegisters = Parts == 1 ? 232 : 112, kFillerRegisters = Parts == 1 ? 40 : 32;
  static constexpr int kAtLaunch = 65536 / kThreads / 8 * 8;  ///< registers of a thread
  static_assert(kConsumers * kRegisters + kFillers * kWarp * kFillerRegisters <= kThreads * kAtLaunch);
};

/// Which tile a thread block computes, and which steps of 64 columns it sums over.
struct TilePlace {
  int first_feature, first_row, first_step, steps, split;

  template <class Shape>
  __device__ static TilePlace of(const QuantisedProduct& job, int splits, int feature_tiles) {
    const int block = static_cast<int>(blockIdx.x), tile = block / splits, split = block % splits;
    const int all = static_cast<int>(job.weights.in_features) / kBlockColumns;
    const int first = all * split / splits;
    return {tile % feature_tiles * Shape::kFeatures, tile / feature_tiles * Shape::kRows, first,
            all * (split + 1) / splits - first, split};
  }
};

/// The operands in global memory, of which a step copies boxes.
struct ProductMaps {
  TensorMap input, codes;
};

/// Where things are in shared memory. Steps are counted from the thread block's first.
template <WeightForm kForm, class Shape>
struct ManyRowsMemory {
  static constexpr bool kTable = kForm != WeightForm::kEightBits;
  static constexpr int kInputBytes = Tile<kBlockColumns>::bytes(Shape::kRows);
  static constexpr int kStepCodes = kBlockColumns / (kTable ? 2 : 1), kCodeSteps = kSwizzled / kStepCodes;
  static constexpr int kCodeBytes = Shape::kFeatures * kSwizzled, kCodeSlots = kTable ? 2 : 4;
  static constexpr int kScaleBytes = kTable ? Shape::kFeatures * static_cast<int>(sizeof(uint32_t)) : 0;
  static constexpr int kCodePlace = Shape::kSlots * kInputBytes;
  static constexpr int kTablePlace = kCodePlace + kCodeSlots * kCodeBytes;
  static constexpr int kScalePlace = kTablePlace + (kTable ? PairTable::kBytes : 0);
  static constexpr int kMapPlace = kScalePlace + Shape::kSlots * kScaleBytes;
  static constexpr int kMapBytes = kForm == WeightForm::kNestedFourBits ? 256 * sizeof(float) : 0;
  static constexpr int kBarrierPlace = kMapPlace + kMapBytes;
  static constexpr int kBarriers = 2 * Shape::kSlots + kCodeSlots + 1;
  static constexpr int kBytes = kBarrierPlace + kBarriers * static_cast<int>(sizeof(TransferBarrier));
  static constexpr int kSumPitch = Shape::kFeatures + kChunk / static_cast<int>(sizeof(float));
  static_assert(Shape::kRows * kSumPitch * static_cast<int>(sizeof(float)) <= kScalePlace);
  static constexpr int kTileBytes = Shape::kRows * Shape::kFeatures * static_cast<int>(sizeof(float)),
                       kPartPlace = kScalePlace - (Shape::kParts - 1) * kTileBytes;
  static constexpr int kMostReceived =
      kTileBytes + (kMostSplits - 1) * kWarpTile * Shape::kFeatures * static_cast<int>(sizeof(float));
  static_assert(kMostReceived <= kPartPlace);
  static_assert(kBytes + 1024 <= 228 * 1024, "a block takes 1 KiB more");
  static constexpr int kStepsOfCodes = kCodeSlots * kCodeSteps;  ///< in all slots
  /// A slot of codes is free once the inputs of all its steps have been read. The filler awaits them one by
  /// one where there are as many slots of inputs, and else a later step's, as a single part reads in order.
  static constexpr bool kEachStep = Shape::kSlots == kStepsOfCodes;
  static_assert(kEachStep || (Shape::kParts == 1 && Shape::kSlots + kCodeSteps <= kStepsOfCodes + 1));

  char* from;

  __device__ __forceinline__ Tile<kBlockColumns> inputs(unsigned step) const {
    return {reinterpret_cast<Bf16*>(from + step % Shape::kSlots * kInputBytes)};
  }
  __device__ __forceinline__ char* codes(unsigned step) const {
    return from + kCodePlace + step / kCodeSteps % kCodeSlots * kCodeBytes;
  }
  /// Eight of a feature's chunks are exchanged by its number.
  __device__ __forceinline__ const char* chunk(unsigned step, int feature, int number) const {
    const int of_step = step % kCodeSteps * (kStepCodes / kChunk);
    return codes(step) + feature * kSwizzled + ((of_step + number) ^ feature % 8) * kChunk;
  }
  __device__ __forceinline__ uint32_t* scales(unsigned step) const {
    return reinterpret_cast<uint32_t*>(from + kScalePlace + step % Shape::kSlots * kScaleBytes);
  }
  __device__ __forceinline__ float* sums(int row) const {
    return reinterpret_cast<float*>(from) + row * kSumPitch;
  }
  /// Those of the other part, behind what other blocks send.
  __device__ __forceinline__ float4* sums_of_parts() const {
    return reinterpret_cast<float4*>(from + kPartPlace);
  }
  __device__ __forceinline__ float* nested_map() const { return reinterpret_cast<float*>(from + kMapPlace); }

  __device__ __forceinline__ TransferBarrier& full(unsigned step) const {
    return barriers()[step % Shape::kSlots];
  }
  __device__ __forceinline__ TransferBarrier& read(unsigned step) const {
    return barriers()[Shape::kSlots + step % Shape::kSlots];
  }
  __device__ __forceinline__ TransferBarrier& codes_full(unsigned step) const {
    return barriers()[2 * Shape::kSlots + step / kCodeSteps % kCodeSlots];
  }
  /// What other blocks of the cluster send has come.
  __device__ __forceinline__ TransferBarrier& received() const { return barriers()[kBarriers - 1]; }
  /// By one thread. `received_bytes`: from other blocks.
  __device__ void set_up_barriers(int received_bytes) const {
    constexpr int kReaders = Shape::kPartThreads / kWarp;
    for (int slot = 0; slot < Shape::kSlots; ++slot) {
      full(slot).set_up(1);
      read(slot).set_up(kReaders);
    }
    for (int slot = 0; slot < kCodeSlots; ++slot) codes_full(slot * kCodeSteps).set_up(1);
    received().set_up(1);
    received().expect(received_bytes);
    received().arrive();
    show_barriers_to_copies();
  }

 private:
  __device__ __forceinline__ TransferBarrier* barriers() const {
    return reinterpret_cast<TransferBarrier*>(from + kBarrierPlace);
  }
};

/// A warp that fills slots: those of every kFillers-th step.
template <class Short, WeightForm kForm, class Shape>
class SlotFiller {
  using Memory = ManyRowsMemory<kForm, Shape>;
  static constexpr int kScales = Shape::kFeatures / kWarp;  ///< of a lane

 public:
  __device__ SlotFiller(const QuantisedProduct& job, const ProductMaps& maps, const TilePlace& place,
                        Memory memory)
      : job_(job),
        maps_(maps),
        place_(place),
        memory_(memory),
        warp_((static_cast<int>(threadIdx.x) - Shape::kConsumers) / kWarp),
        lane_(static_cast<int>(threadIdx.x) % kWarp) {}

  /// Codes of the first slots come before the end of kernels ahead. Whoever multiplies awaits inputs, scales
  /// and codes of a step by one barrier.
  __device__ __forceinline__ void run() {
    for (int step = warp_; step < min(Memory::kStepsOfCodes, place_.steps); step += kFillers)
      fetch_codes(step);
    load_scales(warp_);
    await_kernels_ahead();
#pragma unroll 1
    for (int step = warp_; step < place_.steps; step += kFillers) {
      if (step >= Shape::kSlots) await_read(step);
      if (lane_ == 0) {
        memory_.full(step).expect(Memory::kInputBytes);
        start_copy(memory_.inputs(step).data, maps_.input, place_.first_row,
                   column(step) * static_cast<int>(sizeof(Bf16)), memory_.full(step));
      }
      if (step >= Memory::kStepsOfCodes && step % Memory::kCodeSteps == 0) {
        if constexpr (Memory::kEachStep)
          for (int i = 1; i < Memory::kCodeSteps; ++i) await_read(step + i);
        fetch_codes(step);
      }
      store_scales(step);
      load_scales(step + kFillers);
      memory_.codes_full(step).await(step / Memory::kStepsOfCodes);
      __syncwarp();
      if (lane_ == 0) memory_.full(step).arrive();
    }
  }

 private:
  /// What was in the step's slot of inputs before.
  __device__ __forceinline__ void await_read(int step) const {
    memory_.read(step).await(step / Shape::kSlots - 1);
  }
  __device__ __forceinline__ int column(int step) const {
    return (place_.first_step + step) * kBlockColumns;
  }
  /// Those of this step and the ones after it that lie in the same slot, if it is the slot's first step.
  __device__ __forceinline__ void fetch_codes(int step) const {
    if (lane_ != 0 || step % Memory::kCodeSteps != 0) return;
    memory_.codes_full(step).expect(Memory::kCodeBytes);
    start_copy(memory_.codes(step), maps_.codes, place_.first_feature,
               (place_.first_step + step) * Memory::kStepCodes, memory_.codes_full(step));
    memory_.codes_full(step).arrive();
  }
  __device__ __forceinline__ void load_scales(int step) {
    if constexpr (Memory::kTable) {
      if (step >= place_.steps) return;
#pragma unroll
      for (int i = 0; i < kScales; ++i) {
        // Of features that do not exist the last one: nobody stores their sums.
        const int64_t feature =
            min(int64_t{place_.first_feature} + kWarp * i + lane_, job_.weights.out_features - 1);
        scales_[i] = StoredScale<kForm>::load(job_.weights, block_of(job_.weights, feature, column(step)));
      }
    }
  }
  __device__ __forceinline__ void store_scales(int step) const {
    if constexpr (Memory::kTable) {
#pragma unroll
      for (int i = 0; i < kScales; ++i) {
        const float scale = scales_[i].value(job_.weights, memory_.nested_map());
        memory_.scales(step)[kWarp * i + lane_] = packed<Short>(scale, scale);
      }
    }
  }

  const QuantisedProduct& job_;
  const ProductMaps& maps_;
  const TilePlace& place_;
  const Memory memory_;
  const int warp_, lane_;
  StoredScale<kForm> scales_[kScales];  ///< of the warp's next step
};

}  // namespace adtrain::kernels
