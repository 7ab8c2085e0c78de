#pragma once

#include <cstdint>

#include "kernels/block/stack/StackStages.cuh"
#include "kernels/primitives/ConstantWords.cuh"
#include "kernels/primitives/RowVectors.cuh"
#include "kernels/primitives/ShortTile.cuh"

namespace adtrain::kernels {

/// A warp's columns of a stage, 64 of which have one scale. A lane has two features of each tile, and of 64
/// columns 16 neighbours: a product may take its columns in any order if both operands do.
class StackWeights {
  using Memory = StackMemory;

 public:
  static constexpr int kRuns = 2, kRunColumns = StackShape::kScaledAlike,
                       kOfWarp = kRuns * kRunColumns;  ///< columns
  static constexpr int kProducts = kRunColumns / 16;   ///< of tensor cores

  /// As left operands of 64 columns, without scale.
  struct Operands {
    LeftFragment left[kProducts];
    float scale[2];
  };

  __device__ StackWeights(unsigned warp, unsigned lane) : table_(Memory::kTable + sizeof(uint32_t) * lane) {
    constexpr unsigned kRowBytes = 128, kBox = 16 * kRowBytes;  // see tensor_map()
    const unsigned quad = lane % 4, feature = feature_of(lane / 4), of_box = 2 * (warp % 2);  // the first run
    const unsigned row = kRowBytes * feature;
    codes_ = kBox * (warp / 2) + row + kChunk * ((2 * of_box + quad / 2) ^ feature) + 8 * (quad % 2);
    scales_ = row + kChunk * ((warp / 2) ^ feature) + 4 * of_box;
  }

  /// Which feature of a tile is row 0 … 7 of a product: four rows that a half warp loads at once lie in
  /// different banks. Row 8 … 15: the same + 8.
  __device__ static unsigned feature_of(unsigned row) { return 2 * (row % 4) + row / 4; }

  /// By all threads; a barrier must follow.
  template <class Short>
  __device__ static void fill_table(const float* code_map) {
    constexpr int kChunks = Memory::kTableRow / 2 / 16, kThreadsOfPair = 2;
    const int pair = static_cast<int>(threadIdx.x) / kThreadsOfPair;
    const uint32_t both = packed<Short>(__ldg(code_map + pair / 16), __ldg(code_map + pair % 16));
#pragma unroll
    for (int i = 0; i < kChunks / kThreadsOfPair; ++i) {
      const int chunk = kChunks / kThreadsOfPair * static_cast<int>(threadIdx.x % kThreadsOfPair) +
                        (i + pair) % (kChunks / kThreadsOfPair);
      Memory::at<uint4>(Memory::kTable + Memory::kTableRow * pair + 16 * chunk) = {both, both, both, both};
    }
  }

  /// Waits for the stage, and makes operands of it.
  __device__ void make(int stage, Operands (&of_runs)[kRuns]) const {
    Memory::barrier_of(stage).await(stage / Memory::kStages);
    const uint32_t codes = Memory::codes_of(stage) + codes_, scales = Memory::scales_of(stage) + scales_;
    uint2 low[kRuns], high[kRuns];  // the codes of both features
#pragma unroll
    for (int run = 0; run < kRuns; ++run) {
      const uint32_t of_run = codes ^ (2 * kChunk * static_cast<unsigned>(run)),
                     scale = scales + 4 * static_cast<unsigned>(run);
      low[run] = Memory::at<uint2>(of_run);
      high[run] = Memory::at<uint2>(of_run + kNextEight);
      of_runs[run].scale[0] = Memory::at<float>(scale);
      of_runs[run].scale[1] = Memory::at<float>(scale + kNextEight);
    }
#pragma unroll
    for (int run = 0; run < kRuns; ++run) make(low[run], high[run], of_runs[run]);
  }

 private:
  static constexpr unsigned kChunk = 16, kNextEight = 8 * 128;  ///< bytes; of eight features

  __device__ void make(const uint2& low, const uint2& high, Operands& operands) const {
#pragma unroll
    for (int product = 0; product < kProducts; ++product) {
#pragma unroll
      for (int part = 0; part < 4; ++part) {
        const int byte = 2 * product + part / 2;
        const uint2& codes = part % 2 == 0 ? low : high;
        operands.left[product].part[part] = made_here(pair(byte < 4 ? codes.x : codes.y, byte % 4));
      }
    }
  }
  /// The weights of a byte of codes. The byte's place in the table takes one instruction: the table's begin
  /// is a multiple of 2^16, and its rows are of 2^8 bytes.
  __device__ uint32_t pair(uint32_t codes, int byte) const {
    return load_constant_word(__byte_perm(codes, table_, 0x7604U | static_cast<unsigned>(byte) << 4));
  }

  uint32_t codes_, scales_;  ///< the lane's places in a stage
  uint32_t table_;           ///< in the first row
};

}  // namespace adtrain::kernels
