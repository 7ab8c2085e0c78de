#pragma once

#include <algorithm>
#include <cstdint>

#include "model/kernels/Vec.h"

/// Products of matrices so small that they stay in the first-level cache. Always kRows rows of the left
/// factor at once, so that each load of the right factor serves all of them. `depth` is a multiple of kLanes,
/// `width` and `stride` of kTile.
namespace adtrain::kernels {

constexpr int64_t kRows = 4;
constexpr int64_t kTile = 2 * kLanes;

inline int64_t padded_to_tile(int64_t count) {
  return (count + kTile - 1) / kTile * kTile;
}

/// out[i][j] = Σ_d left[i][d] · columns[d][j] for j < width.
inline void products(const float* left, const float* columns, int64_t stride, int64_t depth, int64_t width,
                     float* out) {
  for (int64_t j = 0; j < width; j += kTile) {
    Vec sums[kRows][2] = {};
    for (int64_t d = 0; d < depth; ++d) {
      const Vec first = load(columns + d * stride + j);
      const Vec second = load(columns + d * stride + j + kLanes);
      for (int64_t i = 0; i < kRows; ++i) {
        sums[i][0] += left[i * depth + d] * first;
        sums[i][1] += left[i * depth + d] * second;
      }
    }
    for (int64_t i = 0; i < kRows; ++i) {
      store(out + i * stride + j, sums[i][0]);
      store(out + i * stride + j + kLanes, sums[i][1]);
    }
  }
}

/// out[i][d] = Σ_j weights[i][j] · rows[j][d] over j < count.
inline void weighted_sums(const float* weights, int64_t stride, const float* rows, int64_t depth,
                          int64_t count, float* out) {
  for (int64_t d = 0; d < depth; d += kLanes) {
    Vec sums[kRows] = {};
    for (int64_t j = 0; j < count; ++j) {
      const Vec row = load(rows + j * depth + d);
      for (int64_t i = 0; i < kRows; ++i) sums[i] += weights[i * stride + j] * row;
    }
    for (int64_t i = 0; i < kRows; ++i) store(out + i * depth + d, sums[i]);
  }
}

/// rows[j][d] += Σ_i weights[i][j] · left[i][d] for j < count.
inline void add_outer(const float* weights, int64_t stride, const float* left, int64_t depth, int64_t count,
                      float* rows) {
  for (int64_t d = 0; d < depth; d += kLanes) {
    Vec parts[kRows];
    for (int64_t i = 0; i < kRows; ++i) parts[i] = load(left + i * depth + d);
    for (int64_t j = 0; j < count; ++j) {
      Vec row = load(rows + j * depth + d);
      for (int64_t i = 0; i < kRows; ++i) row += weights[i * stride + j] * parts[i];
      store(rows + j * depth + d, row);
    }
  }
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

/// columns[d][j] = rows[j][d], 0 for count ≤ j < stride.
inline void transpose(const float* rows, int64_t count, int64_t depth, int64_t stride, float* columns) {
  std::fill_n(columns, depth * stride, 0.0F);
  for (int64_t j = 0; j < count; ++j) {
    for (int64_t d = 0; d < depth; ++d) columns[d * stride + j] = rows[j * depth + d];
  }
}

}  // namespace adtrain::kernels
