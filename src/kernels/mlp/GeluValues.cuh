#pragma once

#include "kernels/activation/GeluKind.h"
#include "kernels/primitives/Instructions.cuh"

namespace adtrain::kernels {

/// gelu(x) = x Φ(x) for epilogues, which wait for instructions and not for memory: Φ(x) = (1 + tanh u) / 2
/// with u = x (c₀ + c₁ x² + c₂ x⁴), where x² is at most 16. The coefficients of kExact were fitted to the
/// exact GELU, from which this one is 3e-5 at most, and its derivative 1.1e-4, "tanh.approx" included. Those
/// of kTanh are its own, and c₂ = 0. (In fp16 for two elements at once, which takes one of an epilogue's 18
/// instructions less, the derivative is up to 6e-3 off.)
template <GeluKind kKind = GeluKind::kExact>
class GeluForm {
 public:
  __device__ explicit GeluForm(float x)
      : square_(fminf(x * x, 16.0F)), tangent_(tanh_of(x * even(kLinear, kCubic, kQuintic, square_))) {}
  /// 2 half Φ(x)
  __device__ float phi(float half) const { return fmaf(tangent_, half, half); }
  /// The derivative at the same x, Φ + x Φ' with Φ' = Φ (1 − tanh u) u'. Its scale is that of `phi`.
  __device__ float slope(float x, float phi) const {
    const float u_slope = even(kLinear, 3 * kCubic, 5 * kQuintic, square_);
    return fmaf(x * phi, fmaf(-u_slope, tangent_, u_slope), phi);
  }

 private:
  static constexpr bool kExact = kKind == GeluKind::kExact;
  static constexpr float kLinear = kExact ? 0.797506586F : 0.797884561F,
                         kCubic = kExact ? 0.0370068211F : 0.044715F * kLinear,
                         kQuintic = kExact ? -0.000351707492F : 0.0F;

  /// a + b s + c s²
  static __device__ float even(float a, float b, float c, float s) {
    if constexpr (kExact)
      return fmaf(fmaf(c, s, b), s, a);
    else
      return fmaf(b, s, a);
  }

  float square_, tangent_;
};

}  // namespace adtrain::kernels
