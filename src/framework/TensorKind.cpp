#include "framework/TensorKind.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

namespace adtrain {

std::string kind_of(const at::Tensor& tensor) {
  return fmt::format("{}({})", c10::toString(tensor.scalar_type()), fmt::join(tensor.sizes(), "x"));
}

}  // namespace adtrain
