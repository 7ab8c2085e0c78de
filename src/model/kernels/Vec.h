#pragma once

#include <cstdint>
#include <cstring>

/// Eight floats at a time, by the compilers' vector extension: AVX2 where it is there, narrower instructions
/// elsewhere.
namespace adtrain::kernels {

using Vec = float __attribute__((vector_size(32)));
using IntVec = int32_t __attribute__((vector_size(32)));
constexpr int64_t kLanes = 8;

inline Vec load(const float* from) {
  Vec vec;
  std::memcpy(&vec, from, sizeof vec);
  return vec;
}

inline void store(float* to, const Vec& vec) {
  std::memcpy(to, &vec, sizeof vec);
}

inline float sum(const Vec& vec) {
  float total = 0;
  for (int64_t lane = 0; lane < kLanes; ++lane) total += vec[lane];
  return total;
}

/// e^x to 2 units in the last place, 0 below −87; NaN stays NaN. x = n ln 2 + r, and e^r by Cephes'
/// polynomial.
inline Vec exp(const Vec& x) {
  constexpr float kRounder = 12582912.0F;  // 1.5 · 2²³: adding it leaves the nearest integer in the low bits
  const Vec low = Vec{} - 87.0F;
  const Vec high = Vec{} + 88.0F;
  const Vec clamped = x < low ? low : (x > high ? high : x);
  const Vec shifted = clamped * 1.44269504F + kRounder;
  const Vec n = shifted - kRounder;
  const Vec r = clamped - n * 0.693359375F + n * 2.12194440e-4F;
  Vec polynomial = r * 1.9875691500e-4F + 1.3981999507e-3F;
  polynomial = polynomial * r + 8.3334519073e-3F;
  polynomial = polynomial * r + 4.1665795894e-2F;
  polynomial = polynomial * r + 1.6666665459e-1F;
  polynomial = polynomial * r + 5.0000001201e-1F;
  const Vec e_r = polynomial * r * r + r + 1.0F;
  const auto scaled = reinterpret_cast<IntVec>(e_r) + (reinterpret_cast<IntVec>(shifted) << 23);
  return x < low ? Vec{} : reinterpret_cast<Vec>(scaled);
}

}  // namespace adtrain::kernels
