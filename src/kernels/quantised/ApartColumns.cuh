#pragma once

#include <cstdint>

#include "kernels/primitives/ShortTile.cuh"
#include "kernels/quantised/Codes.cuh"
#include "kernels/quantised/OutlierKernels.h"

/// The columns that LLM.int8's product multiplies apart: few, as a rule. Their elements are gathered, so many
/// columns at once, and multiplied by tensor cores.
namespace adtrain::kernels {

constexpr int kApartAtOnce = 32;

/// In shared memory: elements of `Rows` rows of the input, and the weights of `Features` features in its
/// type.
template <class Short, int Rows, int Features>
struct alignas(16) ApartColumns {
  static constexpr int kPitch = kApartAtOnce + 8;  ///< neighbouring rows of fragments use different banks

  Short rows[Rows][kPitch], weights[Features][kPitch];

  /// Those of the list's columns from the `first`-th on, by `Threads` threads, of which this is number
  /// `thread`. A barrier must precede and follow.
  template <int Threads>
  __device__ void gather(const OutlierProduct& job, int first_row, int first_feature, int first, int columns,
                         int thread) {
    static_assert(Threads % kApartAtOnce == 0);
    const int count = min(columns - first, kApartAtOnce);
    int width = 1;  // a power of two, so that a thread has one of the columns
    while (width < count) width *= 2;
    const int own = thread % width, begin = thread / width, step = Threads / width;
    const bool exists = own < count;
    const QuantisedProduct& product = job.product;
    const int64_t in_features = product.weights.in_features;
    const int column = exists ? job.apart.columns[first + own] : 0;
    const auto* const input = static_cast<const Short*>(product.input) + column;
    const auto* const codes = static_cast<const int8_t*>(product.weights.codes) + column;
    const int most_rows = exists ? product.rows - first_row : 0,
              most_features = exists ? static_cast<int>(product.weights.out_features) - first_feature : 0;
    const Short zero = rounded_to<Short>(0.0f);
    const auto put = [&](Short* to, Short element) {
      to[own] = element;
      for (int other = own + width; other < kStep; other += width) to[other] = zero;
    };
    for_groups<Rows, Short>(
        begin, step, [&](int row) { return row < most_rows ? input[(first_row + row) * in_features] : zero; },
        [&](int row, Short element) { put(rows[row], element); });
    struct Weight {
      int8_t code;
      float scale;
    };
    for_groups<Features, Weight>(
        begin, step,
        [&](int feature) {
          const int64_t of_all = first_feature + feature;
          return feature < most_features
                     ? Weight{codes[of_all * in_features], row_scale(product.weights, of_all)}
                     : Weight{0, 0.0f};
        },
        [&](int feature, const Weight& weight) {
          put(weights[feature], rounded_to<Short>(static_cast<float>(weight.code) * weight.scale));
        });
  }
  /// sums (16 × 8 `Count`) += the products of the warp's 16 rows from `row` on and the features from
  /// `feature` on. `columns`: from the first one that was gathered on.
  template <int Count>
  __device__ void multiply(Sums (&sums)[Count], int row, int feature, int columns) const {
    const LanePlace place = lane_place();
#pragma unroll 1
    for (int step = 0; step < min(columns, kApartAtOnce); step += kStep) {
      const int column = step + place.column;
      const Short *const upper = rows[row + place.row], *const lower = rows[row + place.row + 8];
      const LeftFragment left = {
          {pair(upper + column), pair(lower + column), pair(upper + column + 8), pair(lower + column + 8)}};
#pragma unroll
      for (int i = 0; i < Count; ++i) {
        const Short* const of_feature = weights[feature + 8 * i + place.row] + column;
        multiply_add<Short>(sums[i], left, pair(of_feature), pair(of_feature + 8));
      }
    }
  }

 private:
  static constexpr int kStep = 16;  ///< columns of a product

  /// Calls put(i, load(i)) for every `step`-th i of `Count` from `begin` on. Several loads are under way
  /// together.
  template <int Count, class Value, class Load, class Put>
  __device__ static void for_groups(int begin, int step, Load&& load, Put&& put) {
    constexpr int kTogether = 8;
#pragma unroll 1
    for (int first = begin; first < Count; first += kTogether * step) {
      Value loaded[kTogether];
#pragma unroll
      for (int i = 0; i < kTogether; ++i) {
        if (first + i * step < Count) loaded[i] = load(first + i * step);
      }
#pragma unroll
      for (int i = 0; i < kTogether; ++i) {
        if (first + i * step < Count) put(first + i * step, loaded[i]);
      }
    }
  }
  __device__ static uint32_t pair(const Short* elements) {
    return *reinterpret_cast<const uint32_t*>(elements);
  }
};

/// The factor of a feature's sums of products of codes, beside that of the row.
__device__ inline float code_factor(const QuantisedWeights& weights, int64_t feature) {
  constexpr float kGreatestCode = 127.0f;
  return row_scale(weights, feature) / kGreatestCode;
}

}  // namespace adtrain::kernels
