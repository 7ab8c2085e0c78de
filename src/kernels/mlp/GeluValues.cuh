#pragma once

#include "kernels/primitives/Instructions.cuh"

namespace adtrain::kernels {

/// gelu(x) = x Φ(x) for epilogues, which wait for instructions and not for memory: Φ(x) = (1 + tanh u) / 2
/// with u = x (c₀ + c₁ x² + c₂ x⁴), where x² is at most 16. The coefficients were fitted to the exact GELU,
/// from which this one is 2.5e-5 at most; "tanh.approx" adds up to 2.5e-4 |x|. A scale of GELU and of its
/// derivative is a scale of Φ.
struct GeluForm {
  float phi, tangent, square;

  __device__ explicit GeluForm(float x, float scale) : square(fminf(x * x, 16.0F)) {
    tangent = tanh_of(x * fmaf(fmaf(kQuintic, square, kCubic), square, kLinear));
    const float half = 0.5F * scale;
    phi = fmaf(tangent, half, half);
  }
  /// The derivative at the same x: Φ + x Φ', Φ' = Φ (1 − tanh u) u'.
  __device__ float slope(float x) const {
    const float u_slope = fmaf(fmaf(5 * kQuintic, square, 3 * kCubic), square, kLinear);
    return fmaf(x * phi, fmaf(-u_slope, tangent, u_slope), phi);
  }

 private:
  static constexpr float kLinear = 0.797506586F, kCubic = 0.0370068211F, kQuintic = -0.000351707492F;
};

}  // namespace adtrain::kernels
