#pragma once

#include <cstdint>

/// Loads of what shared memory holds for the rest of a kernel, or until a barrier behind what the words are
/// used for, with a counterpart in tests/emulation/.
namespace adtrain::kernels {

/// The word at an address of shared memory that nobody stores to. The compiler may move it up to where the
/// address is known; see known_from_here().
__device__ inline uint32_t load_constant_word(uint32_t address) {
  uint32_t word;
  asm("ld.shared.b32 %0, [%1];" : "=r"(word) : "r"(address));
  return word;
}

/// The same of four words; the address is a multiple of 16.
__device__ inline uint4 load_constant_words(uint32_t address) {
  uint4 words;
  asm("ld.shared.v4.b32 {%0, %1, %2, %3}, [%4];"
      : "=r"(words.x), "=r"(words.y), "=r"(words.z), "=r"(words.w)
      : "r"(address));
  return words;
}

/// The same of 16 bits.
__device__ inline uint32_t load_constant_half(uint32_t address) {
  uint32_t half;
  asm("ld.shared.u16 %0, [%1];" : "=r"(half) : "r"(address));
  return half;
}

/// The same value, which the compiler takes for another one: what depends on it stays behind what stands
/// before, a barrier for example.
__device__ inline uint32_t known_from_here(uint32_t value) {
  asm volatile("" : "+r"(value)::"memory");
  return value;
}

/// The same value, which the compiler computes here: before what stands behind, a wait for other kernels for
/// example.
__device__ inline uint32_t made_here(uint32_t value) {
  asm volatile("" : "+r"(value));
  return value;
}

}  // namespace adtrain::kernels
