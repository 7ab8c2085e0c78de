#pragma once

#include <string>

#include <ATen/core/Tensor.h>

namespace adtrain {

/// The content of a NumPy file, format version 1.0, that holds a float32 tensor: magic, version, a header
/// dictionary padded with spaces so that the data begins at a multiple of 64 bytes, then the numbers,
/// row-major and little-endian.
std::string npy_bytes(const at::Tensor& tensor);

}  // namespace adtrain
