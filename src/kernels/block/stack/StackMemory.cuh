#pragma once

#include <cstdint>

#include "kernels/block/stack/DecodingStack.h"
#include "kernels/primitives/Tile.cuh"
#include "kernels/primitives/TransferInstructions.cuh"

namespace adtrain::kernels {

/// The shared memory of a thread block of decode_stack(), nearly all that there is. Places are addresses that
/// the compiler knows: instructions then hold them, and they take no registers.
template <WeightForm kForm>
struct StackMemory {
  static_assert(kForm != WeightForm::kNestedFourBits);
  static constexpr bool kTabled = kForm == WeightForm::kFourBits;
  static constexpr int kWarps = 16, kThreads = kWarps * kWarp, kRows = StackShape::kMostRows;
  static constexpr int kTileFeatures = StackShape::kTile;
  static constexpr int kStages = kTabled ? 8 : 5;  ///< of weights: 16 rows of 2048 columns
  static constexpr int kCodeBytes = 128 * kTileFeatures * StackShape::code_chunks(kForm);
  static constexpr int kScaleBytes = kTabled ? 2048 : 0;

  static constexpr uint32_t kBegin = 1024;     ///< before it is the system's, on compute capability 9.0
  static constexpr uint32_t kScales = kBegin;  ///< of 8 bits: StackedBlock's row_scales
  static constexpr uint32_t kFound = kScales + 16 * 1024;             ///< (warps, rows): InputNorm's sums
  static constexpr uint32_t kBarriers = kFound + kWarps * kRows * 8;  ///< two of each stage
  static constexpr uint32_t kNormWeights = kBarriers + 128;           ///< of the two norms
  static constexpr uint32_t kEnds = kNormWeights + 2 * 2 * StackShape::kWidth;
  static constexpr uint32_t kFrontCodes = 28 * 1024;  ///< of the first stages
  static constexpr int kFrontStages = kTabled ? 2 : 1;
  static constexpr uint32_t kOperands = kFrontCodes + kFrontStages * kCodeBytes;  ///< of each block
  static constexpr uint32_t kTokens =
      kOperands + sizeof(StackedBlock::Operands) * StackShape::kMostBlocks;  ///< TokenPlaces
  /// Of 4 bits, 256 rows of 256 bytes. In their first halves: the pairs of weights that bytes of codes stand
  /// for, a copy for each lane in a bank of its own. In the second ones, and of 8 bits in rows of 128 bytes:
  /// partial sums of a product.
  static constexpr uint32_t kTable = 64 * 1024, kTableRow = 256;
  static constexpr uint32_t kSums = kTabled ? kTable + kTableRow / 2 : kTable, kSumsRow = kTabled ? 256 : 128;
  static constexpr uint32_t kCodes = kTable + 256 * kSumsRow;  ///< of the other stages
  static constexpr uint32_t kEnd = kCodes + (kStages - kFrontStages) * kCodeBytes;
  static constexpr int kBytes = kEnd - kBegin;

  /// What ends a product, of the thread block's features: bias, Σ W γ and W β of a norm, and of 8 bits
  /// scales.
  __device__ static constexpr uint32_t ends_of(int matrix) {
    constexpr uint32_t kScale = kTabled ? 0 : 4;  // bytes of a feature
    constexpr uint32_t kOfQkv = 48 * (2 + 8 + kScale), kOfOut = 16 * (2 + kScale),
                       kOfUp = 64 * (2 + 8 + kScale);
    return kEnds + (matrix == kQkv   ? 0
                    : matrix == kOut ? kOfQkv
                    : matrix == kUp  ? kOfQkv + kOfOut
                                     : kOfQkv + kOfOut + kOfUp);
  }
  static_assert(kEnds + (48 + 64) * (10 + 4) + 2 * 16 * (2 + 4) <= kFrontCodes);
  static_assert(kBytes <= 227 * 1024 && 8 * kStages <= 64 && kScales + kStages * kScaleBytes <= kFound);

  __device__ static uint32_t scales_of(unsigned stage) { return kScales + kScaleBytes * (stage % kStages); }
  __device__ static uint32_t codes_of(unsigned stage) {
    const unsigned place = stage % kStages;
    return (place < kFrontStages ? kFrontCodes : kCodes - kFrontStages * kCodeBytes) + kCodeBytes * place;
  }
  __device__ static TransferBarrier& barrier_of(unsigned stage) {
    return at<TransferBarrier>(kBarriers + 8 * (stage % kStages));
  }
  /// Of 8 bits: of the warps that have read the stage.
  __device__ static TransferBarrier& read_of(unsigned stage) {
    return at<TransferBarrier>(kBarriers + 64 + 8 * (stage % kStages));
  }
  /// Of a warp's partial sums of a row: 32 features of the first or of the second half.
  __device__ static uint32_t part_of(unsigned warp, unsigned row, unsigned half) {
    return kSums + kSumsRow * ((warp * kRows + row) * 2 + half);
  }
  static constexpr uint32_t kPartOfWarp = kSumsRow * 2 * kRows;  ///< from a warp's parts to the next one's

  /// Where in the rings the newest token's place is, and how attention is divided.
  struct TokenPlaces {
    int newest, count;  ///< of places that are taken
    int parts;          ///< thread blocks that share a head's keys
  };
  static_assert(kTokens + sizeof(TokenPlaces) <= kTable && kTokens % 8 == 0);
  static constexpr int kKeysToShare = 257;  ///< of fewer, one thread block is sooner ready
  /// Copied, since who asks for them cannot wait for global memory.
  __device__ static const StackedBlock::Operands& operands_of(int block) {
    return at<StackedBlock::Operands>(kOperands +
                                      sizeof(StackedBlock::Operands) * static_cast<uint32_t>(block));
  }
  /// Of 8 bits.
  __device__ static const float*& row_scales_of(int block, int matrix) {
    return at<const float*>(kScales + sizeof(float*) * static_cast<uint32_t>(kMatrices * block + matrix));
  }
  /// By all threads; a barrier must follow.
  __device__ static void fill_places(const DecodingStack& job) {
    using Operands = StackedBlock::Operands;
    const auto thread = static_cast<int>(threadIdx.x);
    if (thread < job.count) {
      at<Operands>(kOperands + sizeof(Operands) * threadIdx.x) = job.blocks[thread].operands;
      if constexpr (!kTabled) {
        for (int matrix = kQkv; matrix < kMatrices; ++matrix)
          row_scales_of(thread, matrix) = job.blocks[thread].row_scales[matrix];
      }
    }
    if (thread != 0) return;
    const int64_t tokens = __ldg(job.tokens);
    const auto count = static_cast<int>(min(tokens, int64_t{job.window}));
    const int parts = count < kKeysToShare ? 1 : StackShape::kThreadBlocks / (job.rows * StackShape::kHeads);
    at<TokenPlaces>(kTokens) = {static_cast<int>((tokens - 1) % job.window), count, max(parts, 1)};
  }

  template <class Value>
  __device__ static Value& at(uint32_t address) {
    return *reinterpret_cast<Value*>(aligned_shared_memory() + (address - kBegin));
  }
};

}  // namespace adtrain::kernels
