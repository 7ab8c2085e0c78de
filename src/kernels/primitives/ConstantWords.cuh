#pragma once

#include <cstdint>

/// Loads of what shared memory holds for the rest of a kernel, with a counterpart in tests/emulation/.
namespace adtrain::kernels {

/// The word at an address of shared memory that nobody stores to any more. The compiler may move it up to
/// where the address is known; see known_from_here().
__device__ inline uint32_t load_constant_word(uint32_t address) {
  uint32_t word;
  asm("ld.shared.b32 %0, [%1];" : "=r"(word) : "r"(address));
  return word;
}

/// The same of 16 bits.
__device__ inline uint32_t load_constant_half(uint32_t address) {
  uint32_t half;
  asm("ld.shared.u16 %0, [%1];" : "=r"(half) : "r"(address));
  return half;
}

/// The same of a byte.
__device__ inline uint32_t load_constant_byte(uint32_t address) {
  uint32_t byte;
  asm("ld.shared.u8 %0, [%1];" : "=r"(byte) : "r"(address));
  return byte;
}

/// The same value, which the compiler takes for another one: what depends on it stays behind what stands
/// before, a barrier for example.
__device__ inline uint32_t known_from_here(uint32_t value) {
  asm volatile("" : "+r"(value)::"memory");
  return value;
}

}  // namespace adtrain::kernels
