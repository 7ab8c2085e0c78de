#pragma once

#include <cstdint>
#include <cstring>

#include "emulation/Emulator.h"

/// Stands in the place of src/kernels/primitives/ConstantWords.cuh: the same loads in the emulator.
namespace adtrain::kernels {

inline uint32_t load_constant_word(uint32_t address) {
  uint32_t word = 0;
  std::memcpy(&word, emulation::at_shared(address, sizeof(word)), sizeof(word));
  return word;
}

inline uint4 load_constant_words(uint32_t address) {
  uint4 words = {};
  std::memcpy(&words, emulation::at_shared(address, sizeof(words)), sizeof(words));
  return words;
}

inline uint32_t load_constant_half(uint32_t address) {
  uint16_t half = 0;
  std::memcpy(&half, emulation::at_shared(address, sizeof(half)), sizeof(half));
  return half;
}

inline uint32_t known_from_here(uint32_t value) {
  return value;
}

inline uint32_t made_here(uint32_t value) {
  return value;
}

}  // namespace adtrain::kernels
