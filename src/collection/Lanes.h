#pragma once

#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <numbers>

/// Vectors of eight floats. Compilers use AVX instructions for them where allowed, and narrower ones
/// elsewhere.
namespace adtrain {

constexpr int kLanes = 8;
using Lanes = float __attribute__((vector_size(kLanes * sizeof(float))));
using IntegerLanes = int32_t __attribute__((vector_size(kLanes * sizeof(int32_t))));

inline Lanes load(const float* from) {
  Lanes lanes;
  std::memcpy(&lanes, from, sizeof(lanes));
  return lanes;
}
inline void store(float* to, Lanes lanes) {
  std::memcpy(to, &lanes, sizeof(lanes));
}

inline float sum(Lanes lanes) {
  float total = 0;
  for (int i = 0; i < kLanes; ++i) total += lanes[i];
  return total;
}

/// 2^−y for y ≥ 0, with a relative error of 2e-7; 2^−126 where it would be smaller.
inline Lanes exp2_of_minus(Lanes y) {
  // Interpolates 2^−f on [0, 1] at Chebyshev's nodes, and exactly at 0.
  constexpr std::array<float, 7> kCoefficients = {
      1.0F, -0.693147182F, 0.24022609F, -0.0554992296F, 0.00959703512F, -0.00129163684F, 0.000114919952F};
  const Lanes limited = y < 126.0F ? y : Lanes{} + 126.0F;
  const IntegerLanes whole = __builtin_convertvector(limited, IntegerLanes);  // rounds down
  const Lanes fraction = limited - __builtin_convertvector(whole, Lanes);
  Lanes power = Lanes{} + kCoefficients[6];
  for (size_t i = 6; i-- > 0;) power = power * fraction + kCoefficients[i];
  return power * std::bit_cast<Lanes>((127 - whole) << 23);
}

/// The hyperbolic tangent, with an absolute error of 2e-7.
inline Lanes tanh(Lanes x) {
  const Lanes magnitude = x < 0.0F ? -x : x;
  const Lanes decay = exp2_of_minus(magnitude * (2 * std::numbers::log2e_v<float>));
  const Lanes result = (1.0F - decay) / (1.0F + decay);
  return x < 0.0F ? -result : result;
}

/// Transposes a square matrix. Interleaving its upper with its lower half rotates the index bits by one
/// place, so three times swap row and column.
inline void transpose(Lanes (&rows)[kLanes]) {
  for (int round = 0; round < 3; ++round) {
    Lanes interleaved[kLanes];
    for (int i = 0; i < kLanes / 2; ++i) {
      const Lanes upper = rows[i], lower = rows[i + kLanes / 2];
      interleaved[2 * i] = __builtin_shufflevector(upper, lower, 0, 8, 1, 9, 2, 10, 3, 11);
      interleaved[2 * i + 1] = __builtin_shufflevector(upper, lower, 4, 12, 5, 13, 6, 14, 7, 15);
    }
    for (int i = 0; i < kLanes; ++i) rows[i] = interleaved[i];
  }
}

}  // namespace adtrain
