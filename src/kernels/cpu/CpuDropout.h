#pragma once

#include <cmath>
#include <cstdint>
#include <string>

#include <ATen/core/ivalue.h>
#include <c10/util/flat_hash_map.h>

#include "base/Random.h"
#include "kernels/cpu/Vec.h"

namespace adtrain::kernels {

/// Which elements of a matrix one call of dropout on the CPU keeps: a function of (seed, row, column) alone.
/// So a backward pass computes the same mask again, which costs less than storing it, and threads may process
/// rows in any order.
class CpuDropout {
 public:
  /// `rate`: the probability of dropping an element, 0 … 1.
  CpuDropout(uint64_t seed, double rate)
      : seed_(seed),
        rate_(rate),
        scale_(rate < 1 ? static_cast<float>(1 / (1 - rate)) : 0.0F),
        last_kept_(static_cast<uint32_t>(std::fmax(std::round((1 - rate) * 0x1p32) - 1, 0))) {}

  /// Draws the seed from torch's default generator. At rate 0 nothing is drawn.
  static CpuDropout drawn(double rate);

  /// Store this in AutogradContext::saved_data for the backward pass, and restore it.
  using SavedData = ska::flat_hash_map<std::string, at::IValue>;
  void save(SavedData& data) const;
  static CpuDropout saved(SavedData& data);

  class Row;
  Row row(int64_t number) const;

 private:
  uint64_t seed_;
  double rate_;
  float scale_;         ///< of kept elements, so that the mean is preserved
  uint32_t last_kept_;  ///< the largest random word that keeps an element
};

/// The mask of one row.
class CpuDropout::Row {
 public:
  /// The factors of the elements `column` … column + 7. `column` is a multiple of eight.
  Vec factors(int64_t column) const { return keeps_all_ ? Vec{} + 1.0F : drawn_factors(column); }
  float factor(int64_t column) const { return factors(column / kLanes * kLanes)[column % kLanes]; }
  /// Returns work(factors). For loops over many columns: the case without dropout is decided once.
  template <class Work>
  auto with_factors(Work work) const {
    if (keeps_all_) return work([](int64_t) { return Vec{} + 1.0F; });
    return work([*this](int64_t column) { return drawn_factors(column); });
  }

 private:
  friend class CpuDropout;
  Row(const CpuDropout& dropout, uint64_t key)
      : keeps_all_(dropout.rate_ == 0),
        scale_(dropout.scale_),
        last_kept_(dropout.last_kept_),
        first_key_(static_cast<uint32_t>(key)),
        second_key_(static_cast<uint32_t>(key >> 32)) {}

  Vec drawn_factors(int64_t column) const {
    // Wellons' integer hash "lowbias32", with the other half of the row's key between its two rounds.
    WordVec words = reinterpret_cast<WordVec>(kLaneNumbers) + (first_key_ + static_cast<uint32_t>(column));
    words = (words ^ words >> 16) * 0x7feb352dU;
    words = (words ^ words >> 15 ^ second_key_) * 0x846ca68bU;
    return masked(Vec{} + scale_, words <= WordVec{} + last_kept_);
  }

  bool keeps_all_;
  float scale_;
  uint32_t last_kept_, first_key_, second_key_;
};

inline CpuDropout::Row CpuDropout::row(int64_t number) const {
  return {*this, seed_of(seed_, number)};
}

}  // namespace adtrain::kernels
