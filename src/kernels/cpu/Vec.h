#pragma once

#include <cstdint>
#include <cstring>

/// Eight floats at a time by the compiler's vector extension: AVX2 where available, narrower instructions
/// elsewhere.
namespace adtrain::kernels {

using Vec = float __attribute__((vector_size(32)));
using IntVec = int32_t __attribute__((vector_size(32)));
using WordVec = uint32_t __attribute__((vector_size(32)));
constexpr int64_t kLanes = 8;
constexpr IntVec kLaneNumbers = {0, 1, 2, 3, 4, 5, 6, 7};

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

/// The value where the mask's bits are set, 0 where they are not.
inline Vec masked(const Vec& vec, const IntVec& mask) {
  return reinterpret_cast<Vec>(reinterpret_cast<IntVec>(vec) & mask);
}

/// The first `count` lanes, with 0 in the others. `count` may be negative or above kLanes.
inline Vec first_lanes(const Vec& vec, int64_t count) {
  return masked(vec, kLaneNumbers < IntVec{} + static_cast<int32_t>(count));
}

constexpr float kLeastExponent = -87.0F;  ///< e^kLeastExponent is about the least normal float

/// e^x to 2 units in the last place for kLeastExponent ≤ x ≤ 88, undefined elsewhere; NaN stays NaN. x = n ln
/// 2 + r, and e^r is Cephes' polynomial.
inline Vec exp_in_range(const Vec& x) {
  constexpr float kRounder = 12582912.0F;  // 1.5 · 2²³: adding it leaves the nearest integer in the low bits
  const Vec shifted = x * 1.44269504F + kRounder;
  const Vec n = shifted - kRounder;
  const Vec r = x - n * 0.693359375F + n * 2.12194440e-4F;
  Vec polynomial = r * 1.9875691500e-4F + 1.3981999507e-3F;
  polynomial = polynomial * r + 8.3334519073e-3F;
  polynomial = polynomial * r + 4.1665795894e-2F;
  polynomial = polynomial * r + 1.6666665459e-1F;
  polynomial = polynomial * r + 5.0000001201e-1F;
  const Vec e_r = polynomial * r * r + r + 1.0F;
  // n is added to the exponent. The words are unsigned, since the sum may wrap around.
  return reinterpret_cast<Vec>(reinterpret_cast<WordVec>(e_r) + (reinterpret_cast<WordVec>(shifted) << 23));
}

/// The same for x ≤ 88, with e^kLeastExponent for all x below kLeastExponent.
inline Vec exp_at_least(const Vec& x) {
  const Vec low = Vec{} + kLeastExponent;
  return exp_in_range(x < low ? low : x);
}

/// The same for all x: 0 below kLeastExponent, e^88 above 88.
inline Vec exp(const Vec& x) {
  const Vec high = Vec{} + 88.0F;
  return x < kLeastExponent ? Vec{} : exp_at_least(x > high ? high : x);
}

}  // namespace adtrain::kernels
