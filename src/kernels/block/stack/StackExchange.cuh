#pragma once

#include <cstdint>

#include "kernels/block/stack/DecodingStack.h"
#include "kernels/primitives/Tile.cuh"

/// How thread blocks of one kernel give each other pairs of 16-bit numbers and numbers in fp32, as words of
/// 32 bits in global memory. A word that has not come yet is kAbsent; whoever needs it loads it until it has
/// come, so that no barrier stands between. (Low-latency all-reduce kernels do the same, "Lamport" in
/// TensorRT-LLM.) Memory is set to kAbsent before the kernel, in which each word is stored once.
namespace adtrain::kernels {

/// No pair that packed() makes and no result in fp32: it is NaNs of another form than theirs.
constexpr uint32_t kAbsent = 0xffffffff;

__device__ inline void give(uint32_t* to, uint32_t pair) {
  asm volatile("st.relaxed.gpu.global.b32 [%0], %1;" ::"l"(to), "r"(pair) : "memory");
}
__device__ inline void give(uint32_t* to, float2 numbers) {
  asm volatile("st.relaxed.gpu.global.v2.f32 [%0], {%1, %2};" ::"l"(to), "f"(numbers.x), "f"(numbers.y)
               : "memory");
}
/// As it is now.
__device__ inline uint2 look_at(const uint2* from) {
  uint2 now;
  asm volatile("ld.relaxed.gpu.global.v2.b32 {%0, %1}, [%2];"
               : "=r"(now.x), "=r"(now.y)
               : "l"(from)
               : "memory");
  return now;
}
__device__ inline Vector look_at(const Vector* from) {
  Vector now;
  asm volatile("ld.relaxed.gpu.global.v4.b32 {%0, %1, %2, %3}, [%4];"
               : "=r"(now.x), "=r"(now.y), "=r"(now.z), "=r"(now.w)
               : "l"(from)
               : "memory");
  return now;
}
__device__ inline bool has_come(const uint2& words) {
  return words.x != kAbsent && words.y != kAbsent;
}
__device__ inline bool has_come(const Vector& words) {
  return words.x != kAbsent && words.y != kAbsent && words.z != kAbsent && words.w != kAbsent;
}

/// Until the first word has come, for a warp whose words come at about the same time: one lane looks, as
/// loads of all lanes of all thread blocks would be in each other's way.
__device__ inline void await_first(const Vector* from) {
  if (threadIdx.x % kWarp == 0) {
    uint32_t first = kAbsent;
    while (first == kAbsent) first = look_at(from).x;
  }
  __syncwarp();
}

/// Where what a block computes is exchanged.
class BlockExchange {
 public:
  __device__ BlockExchange(const DecodingStack& job, int block) : job_(job), block_(block) {}

  /// (rows, 3 width): queries, keys and values; (rows, width): what attention has read.
  __device__ uint32_t* projected() const { return at(0); }
  __device__ uint32_t* attended() const { return at(3); }
  /// (heads of rows, parts of their keys but the first, kPartWords).
  __device__ uint32_t* of_parts() const { return at(10); }
  /// What a product reads and makes: the first block's input and the last one's output are not exchanged.
  __device__ const void* input_of(int matrix) const {
    if (matrix == kQkv) return has_input() ? BlockExchange(job_, block_ - 1).at(5) : job_.input;
    return at(matrix == kOut ? 3 : matrix == kUp ? 4 : 6);
  }
  __device__ uint32_t* output_of(int matrix) const {
    if (matrix == kDown && block_ + 1 == job_.count) return static_cast<uint32_t*>(job_.output);
    return at(matrix == kQkv ? 0 : matrix == kOut ? 4 : matrix == kUp ? 6 : 5);
  }
  /// Whether the block's input is exchanged.
  __device__ bool has_input() const { return block_ > 0; }

 private:
  /// Behind so many widths of each row.
  __device__ uint32_t* at(int widths) const {
    return job_.exchange + exchange_words(job_.rows, 1) * block_ +
           job_.rows * (StackShape::kWidth / 2) * widths;
  }

  const DecodingStack& job_;
  const int block_;
};

}  // namespace adtrain::kernels
