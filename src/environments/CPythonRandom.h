#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <utility>

namespace adtrain {

/// The numbers that CPython's `random` module gives after `random.seed(seed)`: the Mersenne Twister MT19937
/// (Matsumoto and Nishimura 1998), seeded with the integer's 32-bit digits by init_by_array. Its only purpose
/// is task splits equal to the Python projects'. Everything else draws from base/Random.h.
class CPythonRandom {
 public:
  /// Any integer; like Python, a negative one seeds as its absolute value.
  explicit CPythonRandom(int64_t seed);

  /// `random.getrandbits(bits)`, 1 ≤ bits ≤ 64.
  uint64_t getrandbits(int bits);
  /// `random.randrange(n)`, n ≥ 1: draws until one falls below n.
  uint64_t below(uint64_t n);
  /// `random.shuffle(values)`, of anything with size() and [].
  template <class Values>
  void shuffle(Values& values) {
    for (size_t last = values.size(); last-- > 1;) std::swap(values[last], values[below(last + 1)]);
  }

 private:
  static constexpr size_t kWords = 624;

  uint32_t next();
  void refill();

  std::array<uint32_t, kWords> state_;
  size_t used_ = kWords;
};

}  // namespace adtrain
