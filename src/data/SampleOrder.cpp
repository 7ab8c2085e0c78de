#include "data/SampleOrder.h"

#include <bit>

#include "base/Error.h"
#include "base/Random.h"

namespace adtrain {

SampleOrder::SampleOrder(int64_t samples, uint64_t seed) : samples_(samples), seed_(seed) {
  if (samples < 1) throw DataError("the data set holds no samples; expected at least one");
  const int bits = std::bit_width(static_cast<uint64_t>(samples - 1));
  half_bits_ = (bits + 1) / 2;
}

int64_t SampleOrder::sample_at(int64_t position) const {
  if (samples_ == 1) return 0;
  const uint64_t key = seed_of(seed_, position / samples_);
  auto value = static_cast<uint64_t>(position % samples_);
  // The domain is at most four times n, so this ends after four rounds in expectation.
  do {
    value = permute(value, key);
  } while (value >= static_cast<uint64_t>(samples_));
  return static_cast<int64_t>(value);
}

uint64_t SampleOrder::permute(uint64_t value, uint64_t key) const {
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

}  // namespace adtrain
