#pragma once

#include <cstdint>
#include <type_traits>

#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include "kernels/primitives/MatrixRows.h"
#include "kernels/primitives/ShortType.cuh"
#include "kernels/primitives/Tile.cuh"

/// What the kernels over rows share: vectors of 16-bit elements as floats, and dropout.
namespace adtrain::kernels {

/// The eight elements of a vector.
struct Floats {
  float at[kVectorWidth];
};

template <class Short>
__device__ Short rounded(float value) {
  if constexpr (std::is_same_v<Short, __half>) {
    return __float2half_rn(value);
  } else {
    return __float2bfloat16_rn(value);
  }
}

template <class Short>
__device__ Floats unpacked(const Vector& vector) {
  const float2 a = unpacked<Short>(vector.x), b = unpacked<Short>(vector.y), c = unpacked<Short>(vector.z),
               d = unpacked<Short>(vector.w);
  return {{a.x, a.y, b.x, b.y, c.x, c.y, d.x, d.y}};
}

template <class Short>
__device__ Vector packed(const Floats& floats) {
  const float(&f)[kVectorWidth] = floats.at;
  return {packed<Short>(f[0], f[1]), packed<Short>(f[2], f[3]), packed<Short>(f[4], f[5]),
          packed<Short>(f[6], f[7])};
}

/// Word 0 … 3 of a vector: a pair of elements.
__device__ inline uint32_t word_of(const Vector& vector, int number) {
  const uint32_t words[4] = {vector.x, vector.y, vector.z, vector.w};
  return words[number];
}

/// Dropout of one vector at a time.
class Dropout {
 public:
  __device__ explicit Dropout(const MatrixDropout& bits) : bits_(bits) {}

  __device__ bool drops() const { return bits_.keep != nullptr; }
  /// One bit per element: whether it is kept.
  __device__ unsigned kept(int64_t vector) const {
    constexpr unsigned kAll = 0xff;
    return drops() ? __ldg(bits_.keep + vector) : kAll;
  }
  __device__ void apply(Floats& floats, unsigned keep) const {
#pragma unroll
    for (int i = 0; i < kVectorWidth; ++i) floats.at[i] = keep >> i & 1U ? floats.at[i] * bits_.scale : 0.0F;
  }

 private:
  const MatrixDropout& bits_;
};

}  // namespace adtrain::kernels
