#pragma once

#include <cstdint>
#include <type_traits>

#include "kernels/block/stack/StackStages.cuh"
#include "kernels/primitives/ConstantWords.cuh"
#include "kernels/primitives/RowVectors.cuh"
#include "kernels/primitives/ShortTile.cuh"
#include "kernels/quantised/Codes.cuh"

namespace adtrain::kernels {

/// A warp's columns of a stage, 64 of which have one scale in 4 bits. A lane has two features of each tile,
/// and of 64 columns 16 neighbours: a product may take its columns in any order if both operands do.
template <class Short, WeightForm kForm>
class StackWeights {
  using Memory = StackMemory<kForm>;

 public:
  static constexpr int kRuns = 2, kRunColumns = StackShape::kScaledAlike,
                       kOfWarp = kRuns * kRunColumns;  ///< columns
  static constexpr int kProducts = kRunColumns / 16;   ///< of tensor cores

  /// As left operands of 64 columns, without scale.
  struct Operands {
    LeftFragment left[kProducts];
    float scale[2];  ///< of 4 bits
  };

  __device__ StackWeights(unsigned warp, unsigned lane) : table_(Memory::kTable + sizeof(uint32_t) * lane) {
    constexpr unsigned kRowBytes = 128, kBox = 16 * kRowBytes;  // see tensor_map()
    const unsigned quad = lane % 4, feature = feature_of(lane / 4), row = kRowBytes * feature;
    if constexpr (Memory::kTabled) {
      const unsigned of_box = 2 * (warp % 2);  // the first run
      codes_ = kBox * (warp / 2) + row + kChunk * ((2 * of_box + quad / 2) ^ feature) + 8 * (quad % 2);
      scales_ = row + kChunk * ((warp / 2) ^ feature) + 4 * of_box;
    } else {
      codes_ = kBox * warp + row + kChunk * (quad ^ feature);
    }
  }

  /// Which feature of a tile is row 0 … 7 of a product: rows that lanes load at once lie in different banks,
  /// four of 4 bits, and two of 8. Row 8 … 15: the same + 8.
  __device__ static unsigned feature_of(unsigned row) {
    return Memory::kTabled ? 2 * (row % 4) + row / 4 : 4 * (row % 2) + row / 2;
  }

  /// Of 4 bits. By all threads; a barrier must follow.
  __device__ static void fill_table(const float* code_map) {
    constexpr int kChunks = Memory::kTableRow / 2 / 16, kThreadsOfPair = 2;
    const int pair = static_cast<int>(threadIdx.x) / kThreadsOfPair;
    const uint32_t both = packed<Short>(__ldg(code_map + pair / 16), __ldg(code_map + pair % 16));
#pragma unroll
    for (int i = 0; i < kChunks / kThreadsOfPair; ++i) {
      const int chunk = kChunks / kThreadsOfPair * static_cast<int>(threadIdx.x % kThreadsOfPair) +
                        (i + pair) % (kChunks / kThreadsOfPair);
      Memory::template at<uint4>(Memory::kTable + Memory::kTableRow * pair + 16 * chunk) = {both, both, both,
                                                                                            both};
    }
  }

  /// Waits for the stage, and makes operands of it.
  __device__ void make(int stage, Operands (&of_runs)[kRuns]) const {
    Memory::barrier_of(stage).await(stage / Memory::kStages);
    const uint32_t codes = Memory::codes_of(stage) + codes_;
    Codes low[kRuns], high[kRuns];  // of both features
#pragma unroll
    for (int run = 0; run < kRuns; ++run) {
      const uint32_t of_run = codes ^ (kChunksOfRun * kChunk * static_cast<unsigned>(run));
      low[run] = Memory::template at<Codes>(of_run);
      high[run] = Memory::template at<Codes>(of_run + kNextEight);
      if constexpr (Memory::kTabled) {
        const uint32_t scale = Memory::scales_of(stage) + scales_ + 4 * static_cast<unsigned>(run);
        of_runs[run].scale[0] = Memory::template at<float>(scale);
        of_runs[run].scale[1] = Memory::template at<float>(scale + kNextEight);
      }
    }
#pragma unroll
    for (int run = 0; run < kRuns; ++run) make(low[run], high[run], of_runs[run]);
  }

 private:
  static constexpr unsigned kChunk = 16, kNextEight = 8 * 128;  ///< bytes; of eight features
  static constexpr unsigned kChunksOfRun = Memory::kTabled ? 2 : 4;
  using Codes = std::conditional_t<Memory::kTabled, uint2, uint4>;  ///< of a feature: the lane's of a run

  __device__ void make(const Codes& low, const Codes& high, Operands& operands) const {
#pragma unroll
    for (int product = 0; product < kProducts; ++product) {
#pragma unroll
      for (int part = 0; part < 4; ++part)
        operands.left[product].part[part] =
            made_here(pair(part % 2 == 0 ? low : high, 2 * product + part / 2));
    }
  }
  /// Two neighbouring weights, without scale. Of 4 bits they are a byte of codes, whose place in the table
  /// takes one instruction: the table's begin is a multiple of 2^16, and its rows are of 2^8 bytes.
  __device__ uint32_t pair(const uint2& codes, int number) const {
    return load_constant_word(__byte_perm(number < 4 ? codes.x : codes.y, table_,
                                          0x7604U | static_cast<unsigned>(number % 4) << 4));
  }
  __device__ uint32_t pair(const uint4& codes, int number) const {
    return pair_of_codes<Short>(word_of(codes, number / 2), number % 2 == 0 ? 0x4140 : 0x4342);
  }

  uint32_t codes_, scales_;  ///< the lane's places in a stage; the latter of 4 bits
  uint32_t table_;           ///< in the first row
};

}  // namespace adtrain::kernels
