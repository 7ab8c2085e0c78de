#pragma once

namespace adtrain::kernels {

/// What a result is added to: sums, or zeros, which need not be read.
enum class Addend { kSums, kZero };

}  // namespace adtrain::kernels
