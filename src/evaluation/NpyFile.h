#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include <ATen/core/Tensor.h>

namespace adtrain {

/// The beginning of a NumPy file, format version 1.0: magic, version, and a header dictionary padded with
/// spaces so that the data begins at a multiple of 64 bytes. The elements follow, row-major and
/// little-endian. `descr`: NumPy's description of their type, as a Python literal: '<f4', or of a structure
/// [('a', '<i8'), ('b', '<f4')].
std::string npy_header(const std::string& descr, const std::vector<int64_t>& shape);

/// The content of a NumPy file that holds a float32 tensor.
std::string npy_bytes(const at::Tensor& tensor);

/// The float32 tensor that such content holds, whoever has written it: NumPy, too. `origin`: the file, for
/// messages. Throws DataError where it is damaged or of another type.
at::Tensor tensor_of_npy(std::string_view bytes, const std::string& origin);

}  // namespace adtrain
