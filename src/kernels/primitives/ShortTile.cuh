#pragma once

#include "kernels/primitives/HalfInstructions.cuh"
#include "kernels/primitives/ShortType.cuh"
#include "kernels/primitives/Tile.cuh"

/// Products of fragments of either 16-bit type. Tiles and fragments hold bits, whose type only products know.
namespace adtrain::kernels {

/// sums += left · right. The product sums over 16.
template <class Short>
__device__ void multiply_add(Sums& sums, const LeftFragment& left, uint32_t right_low, uint32_t right_high) {
  if constexpr (std::is_same_v<Short, __half>) {
    multiply_add_half(sums.value, left.part, right_low, right_high);
  } else {
    multiply_add(sums.value, left.part, right_low, right_high);
  }
}

/// Two neighbouring products, which make 16 columns of sums.
template <class Short>
__device__ void multiply_add(Sums& first, Sums& second, const LeftFragment& left,
                             const RightFragments& right) {
  multiply_add<Short>(first, left, right.part[0], right.part[1]);
  multiply_add<Short>(second, left, right.part[2], right.part[3]);
}

/// Rounds the sums of 16 neighbouring columns to a left operand.
template <class Short>
__device__ LeftFragment as_left(const Sums& first, const Sums& second) {
  return {{packed<Short>(first.value[0], first.value[1]), packed<Short>(first.value[2], first.value[3]),
           packed<Short>(second.value[0], second.value[1]), packed<Short>(second.value[2], second.value[3])}};
}

/// The products of two pairs.
template <class Short>
__device__ uint32_t multiplied(uint32_t left, uint32_t right) {
  if constexpr (std::is_same_v<Short, __half>) {
    return multiplied_half(left, right);
  } else {
    return multiplied(left, right);
  }
}

/// The products of two pairs, plus a third, rounded once.
template <class Short>
__device__ uint32_t multiplied_plus(uint32_t left, uint32_t right, uint32_t added) {
  if constexpr (std::is_same_v<Short, __half>) {
    return multiplied_half_plus(left, right, added);
  } else {
    return multiplied_plus(left, right, added);
  }
}

/// The elementwise product.
template <class Short>
__device__ LeftFragment multiplied(const LeftFragment& left, const LeftFragment& right) {
  LeftFragment products;
#pragma unroll
  for (int i = 0; i < 4; ++i) products.part[i] = multiplied<Short>(left.part[i], right.part[i]);
  return products;
}

}  // namespace adtrain::kernels
