#include "evaluation/NpyFile.h"

#include <bit>

#include <ATen/ATen.h>
#include <fmt/format.h>

namespace adtrain {

static_assert(std::endian::native == std::endian::little, "numbers are written as they lie in memory");

std::string npy_header(const std::string& descr, const std::vector<int64_t>& shape) {
  std::string extents;
  for (const int64_t size : shape) extents += fmt::format("{}, ", size);
  std::string header =
      fmt::format("{{'descr': {}, 'fortran_order': False, 'shape': ({}), }}", descr, extents);
  constexpr size_t kPrefix = 10;  // magic (6), version (2), length of the header (2)
  header.append(63 - (kPrefix + header.size()) % 64, ' ');
  header += '\n';

  std::string bytes("\x93NUMPY\x01\x00", 8);
  bytes += static_cast<char>(header.size() & 0xff);
  bytes += static_cast<char>(header.size() >> 8);
  return bytes + header;
}

std::string npy_bytes(const at::Tensor& tensor) {
  std::string bytes = npy_header("'<f4'", tensor.sizes().vec());
  const at::Tensor numbers = tensor.to(at::kCPU, at::kFloat).contiguous();
  bytes.append(static_cast<const char*>(numbers.const_data_ptr()), numbers.nbytes());
  return bytes;
}

}  // namespace adtrain
