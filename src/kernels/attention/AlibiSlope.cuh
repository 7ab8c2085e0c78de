#pragma once

#include "kernels/primitives/Instructions.cuh"

/// What kernels of attention with ALiBi share: see DistancePenalty.
namespace adtrain::kernels {

/// Keys whose weights are certainly less than 2^-26 of what a query reads anyway are not read.
constexpr float kNegligible = 26.0f;

/// ALiBi's slope of a head, of exponents of 2.
__device__ inline float alibi_slope(int head, int heads) {
  constexpr float kOfExponent = 1.44269504f;  // log2 e
  return kOfExponent * exp2_of(-8.0f * static_cast<float>(head + 1) / static_cast<float>(heads));
}

}  // namespace adtrain::kernels
