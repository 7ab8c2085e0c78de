#pragma once

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdint>
#include <cstring>

#include <cuda_fp16.h>

#include "emulation/Emulator.h"

/// The part of CUDA C++ that kernels use without including anything, for a compiler of C++; it comes before
/// the first line of a kernel's source. CUDA's own headers have types and 16-bit arithmetic for CPUs, too.
#undef __shared__
#define __shared__ static
#define __launch_bounds__(...)

static const uint3 &threadIdx = adtrain::emulation::place.thread, &blockIdx = adtrain::emulation::place.block;
static const uint3 &blockDim = adtrain::emulation::place.block_size,
                   &gridDim = adtrain::emulation::place.blocks;

using std::isfinite;
using std::max;
using std::min;

inline void __syncthreads() {
  adtrain::emulation::barrier(0, 0);
}
/// Whether any thread of the block has a value other than 0.
inline int __syncthreads_or(int value) {
  static int any;
  __syncthreads();
  any = 0;
  __syncthreads();
  if (value != 0) any = 1;
  __syncthreads();
  return any;
}
inline void __threadfence() {}
inline void __syncwarp() {
  adtrain::emulation::together([](const auto&) {}, nullptr);
}

namespace adtrain::emulation {

/// What a lane gives of itself to others, and what it takes.
template <class Value>
struct Exchange {
  Value given, taken;
  int from = 0;
};
template <class Value>
Exchange<Value>& exchange_of(const std::array<void*, kLanes>& lanes, int lane) {
  return *static_cast<Exchange<Value>*>(lanes[lane]);
}
inline void check_lanes(unsigned lanes) {
  if (lanes != kAllLanes) fail("only whole warps are emulated");
}
template <class Value>
Value value_of(unsigned lanes, Value value, int from) {
  check_lanes(lanes);
  Exchange<Value> own = {value, {}, from};
  together(
      [](const auto& all) {
        for (int lane = 0; lane < kLanes; ++lane) {
          Exchange<Value>& taker = exchange_of<Value>(all, lane);
          taker.taken = exchange_of<Value>(all, taker.from).given;
        }
      },
      &own);
  return own.taken;
}
/// Bit i: whether lane i has a value other than 0.
inline unsigned votes(unsigned lanes, int value) {
  check_lanes(lanes);
  Exchange<unsigned> own = {value != 0, 0};
  together(
      [](const auto& all) {
        unsigned found = 0;
        for (int lane = 0; lane < kLanes; ++lane) found |= exchange_of<unsigned>(all, lane).given << lane;
        for (int lane = 0; lane < kLanes; ++lane) exchange_of<unsigned>(all, lane).taken = found;
      },
      &own);
  return own.taken;
}

}  // namespace adtrain::emulation

template <class Value>
Value __shfl_sync(unsigned lanes, Value value, int from) {
  return adtrain::emulation::value_of(lanes, value, from % adtrain::emulation::kLanes);
}
template <class Value>
Value __shfl_xor_sync(unsigned lanes, Value value, int apart) {
  const int lane = static_cast<int>(threadIdx.x % adtrain::emulation::kLanes);
  return adtrain::emulation::value_of(lanes, value, lane ^ apart);
}
inline unsigned __ballot_sync(unsigned lanes, int value) {
  return adtrain::emulation::votes(lanes, value);
}
inline int __all_sync(unsigned lanes, int value) {
  return adtrain::emulation::votes(lanes, value) == adtrain::emulation::kAllLanes;
}

inline int __reduce_add_sync(unsigned lanes, int value) {
  for (int apart = 1; apart < adtrain::emulation::kLanes; apart *= 2) {
    value += __shfl_xor_sync(lanes, value, apart);
  }
  return value;
}

template <class Value>
Value __ldg(const Value* from) {
  return *from;
}
template <class Value>
Value __ldcg(const Value* from) {
  return *from;
}
template <class Value>
Value __ldcs(const Value* from) {
  return *from;
}

inline float __uint_as_float(uint32_t bits) {
  float value;
  std::memcpy(&value, &bits, sizeof value);
  return value;
}
inline float __int_as_float(int32_t bits) {
  return __uint_as_float(static_cast<uint32_t>(bits));
}
inline uint32_t __float_as_uint(float value) {
  uint32_t bits;
  std::memcpy(&bits, &value, sizeof bits);
  return bits;
}
inline int __popc(uint32_t bits) {
  return std::popcount(bits);
}
/// The first bit that is set, counted from 1.
inline int __ffs(uint32_t bits) {
  return bits == 0 ? 0 : std::countr_zero(bits) + 1;
}
/// Byte i is that byte of both words (0 … 7) which digit i of `chosen` names.
inline uint32_t __byte_perm(uint32_t low, uint32_t high, uint32_t chosen) {
  const uint64_t both = uint64_t{high} << 32 | low;
  uint32_t bytes = 0;
  for (int i = 0; i < 4; ++i) bytes |= (both >> 8 * (chosen >> 4 * i & 7) & 0xff) << 8 * i;
  return bytes;
}
/// left · right + added of both elements, each rounded once.
inline __half2 __hfma2(__half2 left, __half2 right, __half2 added) {
  const auto of = [](__half l, __half r, __half a) {
    return __double2half(static_cast<double>(__half2float(l)) * __half2float(r) + __half2float(a));
  };
  return {of(left.x, right.x, added.x), of(left.y, right.y, added.y)};
}
/// The upper word of both, moved up by `bits` % 32.
inline uint32_t __funnelshift_l(uint32_t low, uint32_t high, uint32_t bits) {
  return static_cast<uint32_t>((uint64_t{high} << 32 | low) << bits % 32 >> 32);
}
/// Rounded by itself: the compiler must not fuse it with an addition.
inline float __fmul_rn(float left, float right) {
  const volatile float product = left * right;
  return product;
}
inline float __fadd_rn(float left, float right) {
  return left + right;
}
inline float __log2f(float value) {
  return std::log2(value);
}
inline float __expf(float value) {
  return std::exp(value);
}
inline float __fdividef(float dividend, float divisor) {
  return dividend / divisor;
}
inline float rsqrtf(float value) {
  return 1.0f / std::sqrt(value);
}
/// Counts up to `most`, then from 0 again.
inline unsigned atomicInc(unsigned* place, unsigned most) {
  const unsigned before = *place;
  *place = before >= most ? 0 : before + 1;
  return before;
}
inline unsigned atomicMax(unsigned* place, unsigned value) {
  const unsigned before = *place;
  *place = std::max(before, value);
  return before;
}
