#pragma once

namespace adtrain {

/// The epsilon that LayerNorm and RMSNorm add to the variance or mean square.
constexpr double kNormEpsilon = 1e-5;

}  // namespace adtrain
