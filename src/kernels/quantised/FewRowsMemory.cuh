#pragma once

#include "kernels/primitives/Tile.cuh"
#include "kernels/primitives/TransferInstructions.cuh"
#include "kernels/quantised/Codes.cuh"
#include "kernels/quantised/QuantisedKernels.h"

namespace adtrain::kernels {

constexpr int kWarps = 8, kThreads = kWarps * kWarp;

/// Where FewRows has things in shared memory: what codes stand for, the same for all matrices that share
/// their maps, the sums of the warps, and those that the other of kSharers thread blocks sends.
template <WeightForm kForm, int kEights, int kTiles, int kSharers>
struct FewRowsMemory {
  static constexpr bool kTable = kForm != WeightForm::kEightBits,
                        kNested = kForm == WeightForm::kNestedFourBits;
  static constexpr int kNestedValues = 256;
  static constexpr int kPitch = kWarpTile * kTiles + 4;  ///< of sums; so that lanes use different banks
  static constexpr int kPart = 8 * kEights * kPitch;     ///< sums of a warp
  static constexpr int kOfFloat = static_cast<int>(sizeof(float));
  static constexpr int kTableBytes = kTable ? AlignedPairTable::kMostBytes : 0,
                       kNestedBytes = kNested ? kNestedValues * kOfFloat : 0,
                       kPartBytes = kWarps * kPart * kOfFloat,
                       kReceivedBytes = 8 * kEights * kWarpTile * kTiles * kOfFloat, kBarrierBytes = 16,
                       kSharedBytes = kSharers > 1 ? kReceivedBytes + kBarrierBytes : 0,
                       kBytes = kTableBytes + kNestedBytes + kPartBytes + kSharedBytes;

  char* memory;  ///< kBytes, aligned to 128

  __device__ AlignedPairTable table() const { return AlignedPairTable(memory + kBytes - kTableBytes); }
  __device__ float* nested_map() const { return reinterpret_cast<float*>(memory); }
  /// (warps, rows, features)
  __device__ float* parts() const { return reinterpret_cast<float*>(memory + kNestedBytes); }
  /// (rows, features), and the barrier that counts their bytes.
  __device__ float* received() const { return parts() + kPartBytes / kOfFloat; }
  __device__ TransferBarrier& arrival() const {
    return *reinterpret_cast<TransferBarrier*>(received() + kReceivedBytes / kOfFloat);
  }
  /// Fills in what codes stand for, by all threads. A barrier must follow.
  template <class Short>
  __device__ void fill(const QuantisedWeights& weights) const {
    if constexpr (kTable) table().template fill<Short>(weights.code_map, kThreads);
    if constexpr (kNested) {
      for (int i = static_cast<int>(threadIdx.x); i < kNestedValues; i += kThreads)
        nested_map()[i] = __ldg(weights.nested_map + i);
    }
  }
};

}  // namespace adtrain::kernels
