#pragma once

namespace adtrain {

/// What LayerNorm and RMSNorm add to the variance.
constexpr double kNormEpsilon = 1e-5;

}  // namespace adtrain
