#pragma once

#include <cstdint>

#include <driver_types.h>

namespace adtrain::kernels {

/// The probability that dropout keeps an element: a whole number of 1024ths, so that few random words make a
/// word of independent bits. Rates of 1/2048 and less keep everything.
class KeepProbability {
 public:
  explicit KeepProbability(double dropout_rate);

  bool always() const { return kept_ == kSteps; }
  double value() const { return kept_ / double{kSteps}; }
  /// What is kept is multiplied with this, so that the mean stays.
  float scale() const { return kept_ == 0 ? 0.0f : static_cast<float>(1.0 / value()); }
  /// In kSteps-ths.
  int kept() const { return kept_; }

  static constexpr int kDigits = 10;
  static constexpr int kSteps = 1 << kDigits;

 private:
  int kept_;
};

/// Fills `count` words in the GPU's memory with independent bits, each set with this probability: a function
/// of (*seed, stream_of_seed) alone. `seed` is in the GPU's memory, where a captured step finds another one
/// each time. Returns at once; throws EnvironmentError where the kernel cannot be launched.
void fill_keep_bits(uint32_t* words, int64_t count, KeepProbability probability, const int64_t* seed,
                    uint64_t stream_of_seed, cudaStream_t stream);

}  // namespace adtrain::kernels
