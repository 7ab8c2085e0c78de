#pragma once

#include <cstdint>
#include <type_traits>

#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include "kernels/mlp/GeluValues.cuh"
#include "kernels/primitives/ConstantWords.cuh"
#include "kernels/primitives/Instructions.cuh"
#include "kernels/primitives/ShortType.cuh"
#include "kernels/quantised/QuantisedKernels.h"

/// How kernels read codes and their scales.
namespace adtrain::kernels {

/// In fp32 or either 16-bit type.
template <class Element>
__device__ Element rounded_to(float value) {
  if constexpr (std::is_same_v<Element, __half>) {
    return __float2half_rn(value);
  } else if constexpr (std::is_same_v<Element, __nv_bfloat16>) {
    return __float2bfloat16_rn(value);
  } else {
    return value;
  }
}

__device__ inline float as_float(__half value) {
  return __half2float(value);
}
__device__ inline float as_float(__nv_bfloat16 value) {
  return __bfloat162float(value);
}

/// What is added to a sum of columns that has been scaled, before GELU. 0 for nothing.
template <class Short>
__device__ float bias_of(const QuantisedProduct& job, int64_t feature) {
  return job.bias == nullptr ? 0.0f : as_float(static_cast<const Short*>(job.bias)[feature]);
}
__device__ inline float activated(const QuantisedProduct& job, float sum) {
  return job.gelu ? sum * GeluForm(sum).phi(0.5f) : sum;
}
/// The index of the block that an element of the flattened weights is in.
__device__ inline int64_t block_of(const QuantisedWeights& weights, int64_t row, int column) {
  return (row * weights.in_features + column) >> weights.block_shift;
}

/// The scale of a block, as it lies in memory. 8 bits have none: their rows are scaled at the end.
template <WeightForm kForm>
struct StoredScale {
  uint32_t absmax;
  float nested_absmax;

  /// Of a block that does not exist: any number.
  __device__ static StoredScale none() { return {0, 0.0f}; }
  __device__ static StoredScale load(const QuantisedWeights& weights, int64_t block) {
    if constexpr (kForm == WeightForm::kFourBits) {
      return {__float_as_uint(__ldg(static_cast<const float*>(weights.absmax) + block)), 0.0f};
    } else if constexpr (kForm == WeightForm::kNestedFourBits) {
      return {__ldg(static_cast<const uint8_t*>(weights.absmax) + block),
              __ldg(weights.nested_absmax + (block >> weights.nested_shift))};
    } else {
      return {};
    }
  }
  /// In fp32, rounded as bitsandbytes does.
  __device__ float value(const QuantisedWeights& weights, const float* nested_map) const {
    if constexpr (kForm == WeightForm::kFourBits) return __uint_as_float(absmax);
    return __fadd_rn(__fmul_rn(nested_map[absmax], nested_absmax), weights.nested_offset);
  }
};

/// The factor of a row of 8-bit codes.
__device__ inline float row_scale(const QuantisedWeights& weights, int64_t row) {
  constexpr float kGreatestCode = 127.0f;
  return __ldg(static_cast<const float*>(weights.absmax) + row) / kGreatestCode;
}

constexpr int kWarpLanes = 32;

/// The two weights that a byte of 4-bit codes stands for, without their scale, in 16 bit: the code in the
/// high half of a byte comes first, and is the low half of a pair. 256 pairs in shared memory, of which each
/// lane of a warp has a copy in a bank of its own.
class PairTable {
  static constexpr int kPairs = 256;

 public:
  static constexpr int kOfPair = kWarpLanes * static_cast<int>(sizeof(uint32_t)), kBytes = kPairs * kOfPair;

  /// `memory`: kBytes bytes of shared memory, aligned to 128.
  __device__ explicit PairTable(char* memory) : PairTable(memory, threadIdx.x % kWarpLanes) {}
  __device__ PairTable(char* memory, unsigned lane)
      : memory_(memory), of_lane_(shared_address(memory) + sizeof(uint32_t) * lane) {}

  /// Fills it with all `threads` threads. A barrier must follow.
  template <class Short>
  __device__ void fill(const float* code_map, int threads) const {
    constexpr int kChunks = kOfPair / static_cast<int>(sizeof(uint4));
    for (int pair = static_cast<int>(threadIdx.x); pair < kPairs; pair += threads) {
      const uint32_t both = packed<Short>(__ldg(code_map + pair / 16), __ldg(code_map + pair % 16));
#pragma unroll
      for (int i = 0; i < kChunks; ++i) {
        const int chunk = (i + pair) % kChunks;  // so that neighbouring threads use different banks
        reinterpret_cast<uint4*>(memory_ + pair * kOfPair)[chunk] = {both, both, both, both};
      }
    }
  }
  /// The pair of a byte.
  __device__ uint32_t pair(uint32_t byte) const {
    return load_constant_word(byte * kOfPair + of_lane_);
  }

 private:
  char* const memory_;
  const uint32_t of_lane_;  ///< an address of shared memory
};

/// A PairTable that is aligned to its size, so that a byte of a word takes no instruction of its own.
class AlignedPairTable {
  static constexpr uint32_t kOffsets = PairTable::kBytes - PairTable::kOfPair;

 public:
  static constexpr int kBytes = PairTable::kBytes, kMostBytes = 2 * kBytes;  ///< with what aligns it

  /// `memory`: kMostBytes bytes of shared memory.
  __device__ explicit AlignedPairTable(char* memory)
      : memory_(memory + (0 - shared_address(memory)) % kBytes),
        of_lane_(shared_address(memory_) | sizeof(uint32_t) * (threadIdx.x % kWarpLanes)) {}

  /// Fills it with all `threads` threads. A barrier must follow, and then begin().
  template <class Short>
  __device__ void fill(const float* code_map, int threads) const {
    PairTable(memory_).fill<Short>(code_map, threads);
  }
  __device__ void begin() { of_lane_ = known_from_here(of_lane_); }
  /// The pair of byte `byte` of a word.
  __device__ uint32_t pair(uint32_t word, int byte) const {
    const uint32_t offset = (byte == 0 ? word << 7 : word >> (8 * byte - 7)) & kOffsets;
    return load_constant_word(offset | of_lane_);
  }

 private:
  char* const memory_;
  uint32_t of_lane_;
};

/// Two 8-bit codes of a word as a pair of 16-bit numbers, exactly. `chosen`: the bytes' numbers in the first
/// and third digit from below, and 4 in the others.
template <class Short>
__device__ uint32_t pair_of_codes(uint32_t word, uint32_t chosen) {
  if constexpr (std::is_same_v<Short, __half>) {
    const uint32_t shifted = __byte_perm(word, 0x64646464u, chosen) ^ 0x00800080u;  // 1024 + 128 + code
    const uint32_t zero = 0x64806480u;
    const __half2 pair =
        __hsub2(reinterpret_cast<const __half2&>(shifted), reinterpret_cast<const __half2&>(zero));
    return reinterpret_cast<const uint32_t&>(pair);
  } else {
    const uint32_t both = __byte_perm(word, 0x43434343u, chosen);
    const uint32_t shifted = both & 0xff7fff7fu;  // 128 + the code's low seven bits
    const uint32_t zero = both & 0xff80ff80u;     // 128, or of a negative code 256
    const __nv_bfloat162 pair = __hsub2(reinterpret_cast<const __nv_bfloat162&>(shifted),
                                        reinterpret_cast<const __nv_bfloat162&>(zero));
    return reinterpret_cast<const uint32_t&>(pair);
  }
}

}  // namespace adtrain::kernels
