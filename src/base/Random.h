#pragma once

#include <cmath>
#include <cstdint>

namespace adtrain {

/// Mixes 64 bits so that every input bit reaches every output bit (the finaliser of SplitMix64,
/// Steele, Lea and Flood 2014, with Stafford's constants "Mix13").
constexpr uint64_t mix_bits(uint64_t x) {
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9ULL;
  x = (x ^ (x >> 27)) * 0x94d049bb133111ebULL;
  return x ^ (x >> 31);
}

/// One seed out of several numbers: seed_of(seed, rank), seed_of(seed, task, stream), ... Order matters.
template <class... Parts>
constexpr uint64_t seed_of(uint64_t seed, Parts... parts) {
  ((seed = mix_bits(seed + 0x9e3779b97f4a7c15ULL * (static_cast<uint64_t>(parts) + 1))), ...);
  return seed;
}

/// A stream of random numbers that is a function of (key, counter) alone: the state is two numbers, so a
/// checkpoint can hold it and a stream can be resumed or skipped to at no cost. Statistically SplitMix64. Not
/// for cryptography. The constexpr functions are also for kernels, which are compiled as C++17.
class RandomStream {
 public:
  constexpr explicit RandomStream(uint64_t key, uint64_t counter = 0) : key_(key), counter_(counter) {}

  uint64_t key() const { return key_; }
  uint64_t counter() const { return counter_; }

  constexpr uint64_t next() { return mix_bits(key_ + 0x9e3779b97f4a7c15ULL * ++counter_); }
  /// Uniform in [0, 1), 24 bits.
  constexpr float uniform() { return static_cast<float>(next() >> 40) * 0x1.0p-24F; }
  /// Uniform in 0 … n−1 by multiplication; the bias is below n / 2^32.
  constexpr uint32_t below(uint32_t n) { return static_cast<uint32_t>(((next() >> 32) * n) >> 32); }
  /// Standard normal, by Box and Muller's transform.
  double normal() {
    const double u = 1.0 - static_cast<double>(next() >> 11) * 0x1.0p-53;
    const double v = static_cast<double>(next() >> 11) * 0x1.0p-53;
    constexpr double kTwoPi = 6.283185307179586477;
    return std::sqrt(-2.0 * std::log(u)) * std::cos(kTwoPi * v);
  }

 private:
  uint64_t key_;
  uint64_t counter_;
};

}  // namespace adtrain
