#pragma once

#include <c10/core/ScalarType.h>

#include "base/ElementType.h"

namespace adtrain {

/// libtorch's type of numbers as they lie in memory.
at::ScalarType scalar_type_of(ElementType type);
/// The type in which a Batch has them: the same, but that libtorch computes with no truth values and, of
/// unsigned numbers, with bytes alone, so that others are held in the next wider type that it computes with.
at::ScalarType tensor_type(ElementType type);

}  // namespace adtrain
