#pragma once

#include <cstdint>
#include <string>

#include <ATen/core/Tensor.h>
#include <ATen/core/ivalue.h>
#include <c10/util/flat_hash_map.h>

#include "kernels/cpu/Vec.h"
#include "kernels/primitives/HashedDropout.h"

namespace adtrain::kernels {

/// Which elements of a matrix one call of dropout on the CPU keeps: a function of the call's DropoutDraw, the
/// row and the column alone. So a backward pass computes the same mask again, which costs less than storing
/// it, and threads may process rows in any order.
class CpuDropout {
 public:
  /// Of the next draw, for a matrix of so many rows, the same number in each of the sequences. `rate`: the
  /// probability of dropping an element, 0 … 1. At rate 0 nothing is drawn.
  static CpuDropout drawn(double rate, int64_t sequences, int64_t rows);

  /// Store this in AutogradContext::saved_data for the backward pass, and restore it.
  using SavedData = ska::flat_hash_map<std::string, at::IValue>;
  void save(SavedData& data) const;
  static CpuDropout saved(SavedData& data);

  class Row;
  /// `number`: of the matrix's rows.
  Row row(int64_t number) const;

 private:
  CpuDropout(uint64_t call, double rate, const at::Tensor& sequences, int64_t rows_of_sequence);

  uint64_t call_;
  DropoutRate rate_;
  at::Tensor sequences_;  ///< int64: their numbers in the global batch; undefined at rate 0
  const int64_t* numbers_ = nullptr;
  int64_t rows_of_sequence_;
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
  Row(const DropoutRate& rate, uint64_t key)
      : keeps_all_(rate.rate == 0), scale_(rate.scale), last_kept_(rate.last_kept), key_(key) {}

  Vec drawn_factors(int64_t column) const {
    const WordVec columns = reinterpret_cast<WordVec>(kLaneNumbers) + static_cast<uint32_t>(column);
    return masked(Vec{} + scale_, dropout_words(key_, columns) <= WordVec{} + last_kept_);
  }

  bool keeps_all_;
  float scale_;
  uint32_t last_kept_;
  uint64_t key_;
};

inline CpuDropout::Row CpuDropout::row(int64_t number) const {
  if (numbers_ == nullptr) return {rate_, 0};
  const int64_t sequence = number / rows_of_sequence_, in_sequence = number % rows_of_sequence_;
  return {rate_, dropout_row_key(call_, numbers_[sequence] * rows_of_sequence_ + in_sequence)};
}

}  // namespace adtrain::kernels
