#pragma once

#include <string>

#include <ATen/core/Tensor.h>

namespace adtrain {

/// Type and shape for messages: "Float(3x4)".
std::string kind_of(const at::Tensor& tensor);

}  // namespace adtrain
