#pragma once

#include <cstdint>

#include <cuda_bf16.h>

#include "evaluation/gpu/RolloutNetwork.h"

/// Products of tiles of 16 rows on the tensor cores, with about 16 bits of each factor: it is the sum of
/// two bf16 numbers, and of the four products the three large ones are added up in fp32.
namespace adtrain::gpu {

constexpr int kThreads = 512;
constexpr int kWarps = kThreads / 32;
constexpr int kTileRows = 16;
constexpr int kTilesAtOnce = 2;

/// Where a lane's numbers stand in an operand or in a sum of mma.m16n8k16: in rows `row` and `row` + 8, and
/// in columns `column`, `column` + 1 of each 8.
struct Lane {
  int number = static_cast<int>(threadIdx.x) % 32;
  int row = number / 4;
  int column = number % 4 * 2;
};

/// Two numbers, each as the sum of two bf16 numbers.
struct SplitPair {
  uint32_t upper, lower;
};

__device__ inline SplitPair split(float a, float b) {
  const __nv_bfloat162 upper = __floats2bfloat162_rn(a, b);
  const float2 taken = __bfloat1622float2(upper);
  const __nv_bfloat162 lower = __floats2bfloat162_rn(a - taken.x, b - taken.y);
  return {reinterpret_cast<const uint32_t&>(upper), reinterpret_cast<const uint32_t&>(lower)};
}

/// Operand A of a product: 16 rows, 16 columns.
struct SplitOperand {
  uint32_t upper[4], lower[4];

  __device__ void set(int index, SplitPair pair) {
    upper[index] = pair.upper;
    lower[index] = pair.lower;
  }
};

__device__ inline void multiply_add(float (&sum)[4], const uint32_t (&a)[4], uint32_t b0, uint32_t b1) {
  asm("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, "
      "{%0,%1,%2,%3};"
      : "+f"(sum[0]), "+f"(sum[1]), "+f"(sum[2]), "+f"(sum[3])
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
}

/// A 16 × 8 sum. The products of a lower half go to a sum of their own, which halves the chain of additions
/// that wait for each other.
struct SplitSum {
  float large[4] = {}, small[4] = {};

  __device__ void add(const SplitOperand& a, const uint4& b) {
    multiply_add(large, a.upper, b.x, b.y);
    multiply_add(small, a.lower, b.x, b.y);
    multiply_add(small, a.upper, b.z, b.w);
  }
  __device__ float operator[](int index) const { return large[index] + small[index]; }
};

/// 16 rows in shared memory whose numbers are sums of two bf16 numbers.
struct SplitTile {
  __nv_bfloat16* upper;
  __nv_bfloat16* lower;
  int stride;  ///< in numbers; 8 more than the columns, so that eight rows lie in different banks

  __host__ __device__ static constexpr int bytes(int columns) {
    return 2 * kTileRows * (columns + 8) * static_cast<int>(sizeof(__nv_bfloat16));
  }
  __device__ SplitTile(void* memory, int columns)
      : upper(static_cast<__nv_bfloat16*>(memory)),
        lower(upper + kTileRows * (columns + 8)),
        stride(columns + 8) {}

  __device__ void put(int row, int column, float value) const {
    const __nv_bfloat16 rounded = __float2bfloat16_rn(value);
    upper[row * stride + column] = rounded;
    lower[row * stride + column] = __float2bfloat16_rn(value - __bfloat162float(rounded));
  }
  /// Two columns, the first one even.
  __device__ void put(int row, int column, float a, float b) const {
    const SplitPair pair = split(a, b);
    word(upper, row, column) = pair.upper;
    word(lower, row, column) = pair.lower;
  }
  /// 16 columns from `first` on, a multiple of 8; after the last column is whatever there is.
  __device__ SplitOperand operand(const Lane& lane, int first) const {
    // Lane l says where row l mod 8 of the quarter l / 8 begins.
    const int row = lane.number % 16, column = first + lane.number / 16 * 8;
    SplitOperand operand;
    load(operand.upper, upper + row * stride + column);
    load(operand.lower, lower + row * stride + column);
    return operand;
  }

 private:
  __device__ uint32_t& word(__nv_bfloat16* half, int row, int column) const {
    return *reinterpret_cast<uint32_t*>(half + row * stride + column);
  }
  __device__ static void load(uint32_t (&words)[4], const __nv_bfloat16* row) {
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0,%1,%2,%3}, [%4];"
                 : "=r"(words[0]), "=r"(words[1]), "=r"(words[2]), "=r"(words[3])
                 : "r"(static_cast<uint32_t>(__cvta_generic_to_shared(row)))
                 : "memory");
  }
};

/// Tiles of as many columns, one after the other.
struct SplitTiles {
  unsigned char* memory;
  int columns;

  __device__ SplitTile operator[](int tile) const {
    return SplitTile(memory + tile * SplitTile::bytes(columns), columns);
  }
};

/// One tile's products in 8 columns.
struct ProductPart {
  int tile, group;
};

/// A lane's numbers in a product: two columns of rows `row` and `row` + 8.
struct PairOfRows {
  float2 rows[2];
};

/// Gives `take(tile, column, pair of rows)` the products in columns `column` and `column` + 1, bias added, as
/// Lane has them. For all threads. A warp works at `kParts` parts at a time (2 where there are more parts
/// than warps, as a rule) and fetches weights ahead, as they come from far away.
template <int kParts, class Take>
__device__ void multiply(const SplitTiles& tiles, int count, const PackedLinear& linear, Take take) {
  constexpr int kAhead = 8 / kParts;
  const Lane lane;
  const int steps = linear.inputs / 16, parts = linear.outputs / 8 * count;
  for (int first = static_cast<int>(threadIdx.x) / 32; first < parts; first += kParts * kWarps) {
    ProductPart part[kParts];
    const uint4* fragments[kParts];
    for (int i = 0; i < kParts; ++i) {
      const int number =
          first + i * kWarps < parts ? first + i * kWarps : first;  // again, and then not taken
      part[i] =
          count == 1 ? ProductPart{0, number} : ProductPart{number % kTilesAtOnce, number / kTilesAtOnce};
      fragments[i] = linear.fragments + part[i].group * steps * 32 + lane.number;
    }
    uint4 next[kParts][kAhead];
    const auto fetch = [&](int begin) {
#pragma unroll
      for (int i = 0; i < kParts; ++i) {
#pragma unroll
        for (int j = 0; j < kAhead; ++j) {
          next[i][j] = begin + j < steps ? __ldg(fragments[i] + 32 * (begin + j)) : uint4{0, 0, 0, 0};
        }
      }
    };
    SplitSum sums[kParts];
    fetch(0);
    for (int begin = 0; begin < steps; begin += kAhead) {
      uint4 now[kParts][kAhead];
      for (int i = 0; i < kParts; ++i) {
        for (int j = 0; j < kAhead; ++j) now[i][j] = next[i][j];
      }
      if (begin + kAhead < steps) fetch(begin + kAhead);
#pragma unroll
      for (int j = 0; j < kAhead; ++j) {
        const int column = 16 * min(begin + j, steps - 1);
#pragma unroll
        for (int i = 0; i < kParts; ++i) sums[i].add(tiles[part[i].tile].operand(lane, column), now[i][j]);
      }
    }
#pragma unroll
    for (int i = 0; i < kParts; ++i) {
      if (first + i * kWarps >= parts) break;
      const int column = 8 * part[i].group + lane.column;
      const float2 bias = __ldg(reinterpret_cast<const float2*>(linear.bias + column));
      take(part[i].tile, column,
           PairOfRows{
               {{sums[i][0] + bias.x, sums[i][1] + bias.y}, {sums[i][2] + bias.x, sums[i][3] + bias.y}}});
    }
  }
}

}  // namespace adtrain::gpu
