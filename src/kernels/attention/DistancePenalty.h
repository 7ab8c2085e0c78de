#pragma once

namespace adtrain::kernels {

/// What attention takes off the score of a token that lies some positions back.
enum class DistancePenalty {
  kNone,
  kAlibi  ///< 2^(−8(h+1)/H) for each position, in head h = 0 … H−1 (Press et al., 2021, arXiv:2108.12409)
};

}  // namespace adtrain::kernels
