#pragma once

#include <algorithm>
#include <cstdint>
#include <type_traits>

#include "kernels/cpu/Vec.h"

/// Products of matrices that are so small that they stay in the L1 cache. They always process kRows rows of
/// the left factor at once, so that each load of the right factor serves all of them. `depth` is a multiple
/// of kLanes; `width` and `stride` are multiples of kTile.
namespace adtrain::kernels {

constexpr int64_t kRows = 4;
constexpr int64_t kTile = 2 * kLanes;

inline int64_t padded_to_tile(int64_t count) {
  return (count + kTile - 1) / kTile * kTile;
}

/// Sums of kRows rows of vectors in registers. Each loop over them is unrolled, or they would be spilled to
/// memory.
template <int64_t kVectors>
struct RowSums {
  Vec sums[kRows][kVectors];

  void clear() {
#pragma GCC unroll 4
    for (auto& row : sums) {
      for (Vec& each : row) each = Vec{};
    }
  }
  /// sums[i] += left[i · stride] · right for all rows.
  void add(const float* left, int64_t stride, const Vec (&right)[kVectors]) {
#pragma GCC unroll 4
    for (int64_t i = 0; i < kRows; ++i) {
      for (int64_t v = 0; v < kVectors; ++v) sums[i][v] += left[i * stride] * right[v];
    }
  }
  void write(float* to, int64_t stride) const {
#pragma GCC unroll 4
    for (int64_t i = 0; i < kRows; ++i) {
      for (int64_t v = 0; v < kVectors; ++v) store(to + i * stride + v * kLanes, sums[i][v]);
    }
  }
};

/// out[i][j] = Σ_d left[i][d] · columns[d][j] for j < width.
inline void products(const float* left, const float* columns, int64_t stride, int64_t depth, int64_t width,
                     float* out) {
  for (int64_t j = 0; j < width; j += kTile) {
    RowSums<2> sums;
    sums.clear();
    for (int64_t d = 0; d < depth; ++d) {
      const float* column = columns + d * stride + j;
      sums.add(left + d, depth, {load(column), load(column + kLanes)});
    }
    sums.write(out + j, stride);
  }
}

/// Calls work(d, vectors) for d from 0 to depth, two vectors at a time and one at the end where the count is
/// odd. One vector alone gives too few independent sums to hide the latency of the arithmetic.
template <class Work>
void for_vectors_of(int64_t depth, Work work) {
  int64_t d = 0;
  for (; d + 2 * kLanes <= depth; d += 2 * kLanes) work(d, std::integral_constant<int64_t, 2>());
  if (d < depth) work(d, std::integral_constant<int64_t, 1>());
}

/// out[i][d] = Σ_j weights[i][j] · rows[j][d] over j < count.
inline void weighted_sums(const float* weights, int64_t stride, const float* rows, int64_t depth,
                          int64_t count, float* out) {
  for_vectors_of(depth, [=](int64_t d, auto vectors) {
    RowSums<vectors> sums;
    sums.clear();
    for (int64_t j = 0; j < count; ++j) {
      Vec row[vectors];
      for (int64_t v = 0; v < vectors; ++v) row[v] = load(rows + j * depth + d + v * kLanes);
      sums.add(weights + j, stride, row);
    }
    sums.write(out + d, depth);
  });
}

/// rows[j][d] += Σ_i weights[i][j] · left[i][d] for j < count.
inline void add_outer(const float* weights, int64_t stride, const float* left, int64_t depth, int64_t count,
                      float* rows) {
  for_vectors_of(depth, [=](int64_t d, auto vectors) {
    Vec parts[kRows][vectors];
#pragma GCC unroll 4
    for (int64_t i = 0; i < kRows; ++i) {
      for (int64_t v = 0; v < vectors; ++v) parts[i][v] = load(left + i * depth + d + v * kLanes);
    }
    for (int64_t j = 0; j < count; ++j) {
      for (int64_t v = 0; v < vectors; ++v) {
        float* row = rows + j * depth + d + v * kLanes;
        Vec sums = load(row);
#pragma GCC unroll 4
        for (int64_t i = 0; i < kRows; ++i) sums += weights[i * stride + j] * parts[i][v];
        store(row, sums);
      }
    }
  });
}

inline float dot(const float* a, const float* b, int64_t depth) {
  Vec sums = {};
  for (int64_t d = 0; d < depth; d += kLanes) sums += load(a + d) * load(b + d);
  return sum(sums);
}

/// to[d] += factor · from[d].
inline void add_scaled(float* to, float factor, const float* from, int64_t depth) {
  for (int64_t d = 0; d < depth; d += kLanes) store(to + d, load(to + d) + factor * load(from + d));
}

inline void scale(float* row, float factor, int64_t depth) {
  for (int64_t d = 0; d < depth; d += kLanes) store(row + d, factor * load(row + d));
}

/// Copies rows that are `from_stride` and `to_stride` elements apart. Rows far apart would miss the cache one
/// by one, so they are prefetched.
inline void copy_rows(const float* from, int64_t from_stride, int64_t count, int64_t depth, float* to,
                      int64_t to_stride) {
  constexpr int64_t kAhead = 12;
  for (int64_t j = 0; j < count; ++j) {
    __builtin_prefetch(from + (j + kAhead) * from_stride);
    __builtin_prefetch(to + (j + kAhead) * to_stride, /*for writing*/ 1);
    for (int64_t d = 0; d < depth; d += kLanes)
      store(to + j * to_stride + d, load(from + j * from_stride + d));
  }
}

/// columns[d][j] = rows[j][d], 0 for count ≤ j < stride.
inline void transpose(const float* rows, int64_t count, int64_t depth, int64_t stride, float* columns) {
  std::fill_n(columns, depth * stride, 0.0F);
  for (int64_t j = 0; j < count; ++j) {
    for (int64_t d = 0; d < depth; ++d) columns[d * stride + j] = rows[j * depth + d];
  }
}

}  // namespace adtrain::kernels
