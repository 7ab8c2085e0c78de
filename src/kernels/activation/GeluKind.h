#pragma once

namespace adtrain::kernels {

/// Which function GELU is: x Φ(x) with the distribution function of the standard normal distribution, or with
/// (1 + tanh(√(2/π) (x + 0.044715 x³))) / 2 for Φ, as in GPT-2; both of Hendrycks and Gimpel (2016,
/// arXiv:1606.08415).
enum class GeluKind { kExact, kTanh };

}  // namespace adtrain::kernels
