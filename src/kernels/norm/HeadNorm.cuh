#pragma once

#include "kernels/primitives/RowVectors.cuh"

/// LayerNorm and RMSNorm over the features of a head, of which each of some neighbouring lanes has a vector.
namespace adtrain::kernels {

/// The lanes of a head.
template <int HeadSize>
struct HeadLanes {
  static constexpr int kCount = HeadSize / kVectorWidth;

  /// Over the head's lanes; all lanes of the warp take part.
  __device__ static float sum(float value) {
#pragma unroll
    for (int apart = 1; apart < kCount; apart *= 2) value += __shfl_xor_sync(kAllLanes, value, apart);
    return value;
  }
};

/// Replaces x by (x − mean) / deviation, of RMSNorm by x / root mean square. Returns 1 / deviation.
template <int HeadSize, bool Layer>
__device__ float normalise(Floats& x, float epsilon) {
  using Lanes = HeadLanes<HeadSize>;
  constexpr float kPerElement = 1.0f / HeadSize;
  if constexpr (Layer) {
    float total = 0.0f;
#pragma unroll
    for (int i = 0; i < kVectorWidth; ++i) total += x.at[i];
    const float mean = Lanes::sum(total) * kPerElement;
#pragma unroll
    for (int i = 0; i < kVectorWidth; ++i) x.at[i] -= mean;
  }
  float squares = 0.0f;
#pragma unroll
  for (int i = 0; i < kVectorWidth; ++i) squares += x.at[i] * x.at[i];
  const float inverse = rsqrtf(Lanes::sum(squares) * kPerElement + epsilon);
#pragma unroll
  for (int i = 0; i < kVectorWidth; ++i) x.at[i] *= inverse;
  return inverse;
}

/// The lane's vector of a head, normed and rounded. `weight`, `bias`: the lane's; no bias of RMSNorm.
template <class Short, int HeadSize, bool Layer>
__device__ Vector normed_head(const Vector& x, const Floats& weight, const Floats& bias, float epsilon) {
  Floats values = unpacked<Short>(x);
  normalise<HeadSize, Layer>(values, epsilon);
#pragma unroll
  for (int i = 0; i < kVectorWidth; ++i) {
    values.at[i] *= weight.at[i];
    if constexpr (Layer) values.at[i] += bias.at[i];
  }
  return packed<Short>(values);
}

}  // namespace adtrain::kernels
