#pragma once

#include "kernels/primitives/Instructions.cuh"

namespace adtrain::kernels {

/// gelu(x) = x Φ(x) for epilogues, which wait for instructions and not for memory: Φ(x) = (1 + tanh u) / 2
/// with u = x (c₀ + c₁ x² + c₂ x⁴), where x² is at most 16. The coefficients were fitted to the exact GELU,
/// from which this one is 3e-5 at most, and its derivative 1.1e-4, "tanh.approx" included. (In fp16 for two
/// elements at once, which takes one of an epilogue's 18 instructions less, the derivative is up to 6e-3
/// off.)
class GeluForm {
 public:
  __device__ explicit GeluForm(float x)
      : square_(fminf(x * x, 16.0F)),
        tangent_(tanh_of(x * fmaf(fmaf(kQuintic, square_, kCubic), square_, kLinear))) {}
  /// 2 half Φ(x)
  __device__ float phi(float half) const { return fmaf(tangent_, half, half); }
  /// The derivative at the same x, Φ + x Φ' with Φ' = Φ (1 − tanh u) u'. Its scale is that of `phi`.
  __device__ float slope(float x, float phi) const {
    const float u_slope = fmaf(fmaf(5 * kQuintic, square_, 3 * kCubic), square_, kLinear);
    return fmaf(x * phi, fmaf(-u_slope, tangent_, u_slope), phi);
  }

 private:
  static constexpr float kLinear = 0.797506586F, kCubic = 0.0370068211F, kQuintic = -0.000351707492F;

  float square_, tangent_;
};

}  // namespace adtrain::kernels
