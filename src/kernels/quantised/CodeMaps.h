#pragma once

#include <array>

#include <ATen/core/Tensor.h>

#include "kernels/quantised/QuantisedMatrix.h"

namespace adtrain::kernels {

/// What the 16 codes of 4 bits stand for, in their order.
std::array<float, 16> code_values(QuantisedCode code);

/// fp32 [256], ascending: the signed dynamic map of 8 bits (Dettmers, 2015, arXiv:1511.04561), by which
/// double quantisation codes each absmax. For i = 0 … 6 the midpoints of 2^i equal parts of [0.1, 1], times
/// ±10^(i − 6), and 0 and 1.
at::Tensor dynamic_map();

}  // namespace adtrain::kernels
