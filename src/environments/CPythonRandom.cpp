#include "environments/CPythonRandom.h"

#include <algorithm>
#include <bit>
#include <vector>

namespace adtrain {

CPythonRandom::CPythonRandom(int64_t seed) {
  const uint64_t magnitude = seed < 0 ? 0 - static_cast<uint64_t>(seed) : static_cast<uint64_t>(seed);
  std::vector<uint32_t> key = {static_cast<uint32_t>(magnitude)};
  if (magnitude >> 32 != 0) key.push_back(static_cast<uint32_t>(magnitude >> 32));

  // init_genrand(19650218), then init_by_array(key), as in the authors' mt19937ar.
  state_[0] = 19650218;
  const auto carried = [&](size_t i) { return state_[i - 1] ^ (state_[i - 1] >> 30); };
  for (uint32_t i = 1; i < kWords; ++i) state_[i] = 1812433253U * carried(i) + i;

  size_t i = 1;
  const auto advance = [&] {
    if (++i < kWords) return;
    state_[0] = state_[kWords - 1];
    i = 1;
  };
  for (uint32_t k = 0; k < kWords; ++k) {
    const auto j = k % static_cast<uint32_t>(key.size());
    state_[i] = (state_[i] ^ (carried(i) * 1664525U)) + key[j] + j;
    advance();
  }
  for (size_t k = 1; k < kWords; ++k) {
    state_[i] = (state_[i] ^ (carried(i) * 1566083941U)) - static_cast<uint32_t>(i);
    advance();
  }
  state_[0] = 0x80000000U;
}

void CPythonRandom::refill() {
  constexpr size_t kShift = 397;
  for (size_t i = 0; i < kWords; ++i) {
    const uint32_t joined = (state_[i] & 0x80000000U) | (state_[(i + 1) % kWords] & 0x7fffffffU);
    state_[i] = state_[(i + kShift) % kWords] ^ (joined >> 1) ^ ((joined & 1U) != 0 ? 0x9908b0dfU : 0U);
  }
  used_ = 0;
}

uint32_t CPythonRandom::next() {
  if (used_ == kWords) refill();
  uint32_t word = state_[used_++];
  word ^= word >> 11;
  word ^= (word << 7) & 0x9d2c5680U;
  word ^= (word << 15) & 0xefc60000U;
  return word ^ (word >> 18);
}

uint64_t CPythonRandom::getrandbits(int bits) {
  if (bits <= 32) return next() >> (32 - bits);
  const uint64_t low = next();
  return low | static_cast<uint64_t>(next() >> (64 - bits)) << 32;
}

uint64_t CPythonRandom::below(uint64_t n) {
  const int bits = std::bit_width(n);
  uint64_t drawn = getrandbits(bits);
  while (drawn >= n) drawn = getrandbits(bits);
  return drawn;
}

}  // namespace adtrain
