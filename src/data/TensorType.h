#pragma once

#include <cstdint>
#include <vector>

#include <ATen/core/Tensor.h>

#include "base/ElementType.h"
#include "data/formats/Column.h"

namespace adtrain {

/// libtorch's type of numbers as they lie in memory.
at::ScalarType scalar_type_of(ElementType type);
/// The type in which a Batch has them: the same, but that libtorch computes with no truth values and, of
/// unsigned numbers, with bytes alone, so that others are held in the next wider type that it computes with.
at::ScalarType tensor_type(ElementType type);

/// Room for rows of a column, behind `leading` axes, as a Batch has them. Without values.
at::Tensor empty_rows(const ColumnType& column, std::vector<int64_t> leading, at::Device device = at::kCPU);

}  // namespace adtrain
