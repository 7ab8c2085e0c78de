#pragma once

#include <cstdint>

#include "base/Random.h"

namespace adtrain {

/// The one global order in which samples are drawn: position p of a run is a function of (seed, p) alone,
/// whatever the number of ranks, so that ranks draw disjoint samples and a run resumes anywhere. Each epoch
/// visits every sample once, in an order of its own.
///
/// The shuffle is a keyed permutation of 0 … n−1 computed on the fly (a four-round Feistel network over the
/// next even power of two, walked until it lands below n: Black and Rogaway, "Ciphers with Arbitrary Finite
/// Domains", 2002): no table, any n, random access in constant expected time. Thread-safe: immutable.
/// Works in CUDA kernels too.
class SampleOrder {
 public:
  /// `samples` ≥ 1 is the size of the data set.
  SampleOrder(int64_t samples, uint64_t seed);

  /// The sample at `position` ≥ 0 of the run; position ÷ samples is the epoch.
  constexpr int64_t sample_at(int64_t position) const {
    if (samples_ == 1) return 0;
    const uint64_t key = seed_of(seed_, position / samples_);
    auto value = static_cast<uint64_t>(position % samples_);
    // The domain is at most four times n, so this ends after four rounds in expectation.
    do {
      value = permute(value, key);
    } while (value >= static_cast<uint64_t>(samples_));
    return static_cast<int64_t>(value);
  }
  constexpr int64_t samples() const { return samples_; }

 private:
  constexpr uint64_t permute(uint64_t value, uint64_t key) const {
    const uint64_t mask = (uint64_t{1} << half_bits_) - 1;
    uint64_t left = value >> half_bits_;
    uint64_t right = value & mask;
    for (uint64_t round = 0; round < 4; ++round) {
      const uint64_t next = left ^ (seed_of(key, round, right) & mask);
      left = right;
      right = next;
    }
    return (left << half_bits_) | right;
  }

  int64_t samples_;
  uint64_t seed_;
  int half_bits_;
};

}  // namespace adtrain
