#pragma once

#include "kernels/norm/HeadNorm.cuh"
#include "kernels/primitives/Instructions.cuh"
#include "kernels/primitives/RowVectors.cuh"

namespace adtrain::kernels {

constexpr float kLowest = -1e30f;  ///< below all scores; finite, so that differences are numbers

/// What some keys give a query: the weights' sum and the weighted values' are relative to 2^greatest.
struct Found {
  float greatest = kLowest, total = 0.0f;
  Floats values = {};

  __device__ void scale_to(float new_greatest) {
    const float factor = exp2_of(greatest - new_greatest);
    greatest = new_greatest;
    total *= factor;
#pragma unroll
    for (float& value : values.at) value *= factor;
  }
};

__device__ inline float product_of(const Floats& left, const Floats& right) {
  float sum = 0.0f;
#pragma unroll
  for (int i = 0; i < kVectorWidth; ++i) sum = fmaf(left.at[i], right.at[i], sum);
  return sum;
}

/// Where the warps of a thread block meet: shared memory.
template <int HeadSize, int kWarps>
struct DecodingMemory {
  Vector newest_key[HeadLanes<HeadSize>::kCount];  ///< normed
  Vector query[HeadLanes<HeadSize>::kCount];       ///< normed
  int read;                                        ///< how many keys are read, the newest ones
  float values[kWarps][HeadSize], totals[kWarps], maxima[kWarps];
  int is_last;
};

}  // namespace adtrain::kernels
