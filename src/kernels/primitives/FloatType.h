#pragma once

namespace adtrain::kernels {

/// The types of elements that kernels read and write.
enum class FloatType { kFloat, kHalf, kBFloat16 };

}  // namespace adtrain::kernels
