#pragma once

#include <cstdint>

namespace adtrain {

/// The one global order in which samples are drawn: position p of a run is a function of (seed, p) alone,
/// whatever the number of ranks, so that ranks draw disjoint samples and a run resumes anywhere. Each epoch
/// visits every sample once, in an order of its own.
///
/// The shuffle is a keyed permutation of 0 … n−1 computed on the fly (a four-round Feistel network over the
/// next even power of two, walked until it lands below n: Black and Rogaway, "Ciphers with Arbitrary Finite
/// Domains", 2002): no table, any n, random access in constant expected time. Thread-safe: immutable.
class SampleOrder {
 public:
  /// `samples` ≥ 1 is the size of the data set.
  SampleOrder(int64_t samples, uint64_t seed);

  /// The sample at `position` ≥ 0 of the run; position ÷ samples is the epoch.
  int64_t sample_at(int64_t position) const;
  int64_t samples() const { return samples_; }

 private:
  uint64_t permute(uint64_t value, uint64_t key) const;

  int64_t samples_;
  uint64_t seed_;
  int half_bits_;
};

}  // namespace adtrain
