#pragma once

#include <bit>
#include <cstdint>
#include <cstring>

/// Eight floats that are computed with at once. Compilers turn these into AVX instructions where they may, and into
/// pairs of narrower ones elsewhere.
namespace adtrain {

constexpr int kLanes = 8;
using Lanes = float __attribute__((vector_size(kLanes * sizeof(float))));
using IntegerLanes = int32_t __attribute__((vector_size(kLanes * sizeof(int32_t))));

inline Lanes load(const float* from) {
  Lanes lanes;
  std::memcpy(&lanes, from, sizeof(lanes));
  return lanes;
}
inline void store(float* to, Lanes lanes) { std::memcpy(to, &lanes, sizeof(lanes)); }

inline float sum(Lanes lanes) {
  float total = 0;
  for (int i = 0; i < kLanes; ++i) total += lanes[i];
  return total;
}

/// 2^−y for y ≥ 0, to within 2 units in the last place; 2^−126 for larger y.
inline Lanes exp2_of_minus(Lanes y) {
  y = y < 126.0F ? y : Lanes{} + 126.0F;
  const IntegerLanes whole = __builtin_convertvector(y, IntegerLanes);  // rounds down
  const Lanes fraction = y - __builtin_convertvector(whole, Lanes);
  // The polynomial of degree 6 that interpolates 2^−f on [0, 1) at Chebyshev's nodes, with value 1 at 0.
  Lanes power = Lanes{} + kExp2[6];
  for (int i = 5; i >= 0; --i) power = power * fraction + kExp2[i];
  return power * std::bit_cast<Lanes>((127 - whole) << 23);
}

}  // namespace adtrain
