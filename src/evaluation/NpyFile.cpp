#include "evaluation/NpyFile.h"

#include <algorithm>
#include <bit>
#include <charconv>
#include <cstring>
#include <optional>
#include <system_error>

#include <ATen/ATen.h>
#include <fmt/format.h>

#include "base/Error.h"
#include "base/Text.h"
#include "base/Words.h"

namespace adtrain {

static_assert(std::endian::native == std::endian::little, "numbers are written as they lie in memory");

namespace {

constexpr std::string_view kVersion("\x93NUMPY\x01\x00", 8);
constexpr size_t kPrefix = 10;  ///< magic (6), version (2), length of the rest of the header (2)

/// Nothing where the header has no shape that can be read.
std::optional<std::vector<int64_t>> shape_in(std::string_view header) {
  constexpr std::string_view kShape = "'shape': (";
  const size_t found = header.find(kShape), end = header.find(')', found);
  if (found == std::string_view::npos || end == std::string_view::npos) return std::nullopt;
  std::vector<int64_t> shape;
  const char* const last = header.data() + end;
  for (const char* at = header.data() + found + kShape.size(); at != last;) {
    if (*at == ' ' || *at == ',') {
      ++at;
      continue;
    }
    const auto [next, error] = std::from_chars(at, last, shape.emplace_back());
    if (error != std::errc() || shape.back() < 0) return std::nullopt;
    at = next;
  }
  return shape;
}

/// Whether that many elements are there; no product of sizes overflows.
bool has_elements(const std::vector<int64_t>& shape, int64_t elements) {
  if (std::ranges::find(shape, 0) != shape.end()) return elements == 0;
  for (const int64_t size : shape) {
    if (elements % size != 0) return false;
    elements /= size;
  }
  return elements == 1;
}

}  // namespace

std::string npy_header(const std::string& descr, const std::vector<int64_t>& shape) {
  std::string extents;
  for (const int64_t size : shape) extents += fmt::format("{}, ", size);
  std::string header =
      fmt::format("{{'descr': {}, 'fortran_order': False, 'shape': ({}), }}", descr, extents);
  header.append(63 - (kPrefix + header.size()) % 64, ' ');
  header += '\n';

  std::string bytes(kVersion);
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

at::Tensor tensor_of_npy(std::string_view bytes, const std::string& origin) {
  const auto damaged = [&](const std::string& found) {
    return DataError(fmt::format(
        "{} is damaged: {}; expected an array of float32 as adtrain evaluate writes it: evaluate again",
        origin, found));
  };
  const auto byte = [&](size_t at) { return static_cast<size_t>(static_cast<uint8_t>(bytes[at])); };
  if (bytes.size() < kPrefix || !bytes.starts_with(kVersion))
    throw damaged(fmt::format("its {} bytes do not begin as those of a NumPy file", bytes.size()));
  const size_t begin = kPrefix + byte(8) + 256 * byte(9);
  if (bytes.size() < begin)
    throw damaged(fmt::format("it ends after {} bytes, within its header of {}", bytes.size(), begin));
  const std::string_view header = bytes.substr(kPrefix, begin - kPrefix), held = bytes.substr(begin);
  const std::optional<std::vector<int64_t>> shape = shape_in(header);
  if (!shape || header.find("'descr': '<f4'") == std::string_view::npos ||
      header.find("'fortran_order': False") == std::string_view::npos) {
    throw damaged("its header says " + abridged(std::string(trimmed(header))));
  }
  if (held.size() % sizeof(float) != 0 ||
      !has_elements(*shape, static_cast<int64_t>(held.size() / sizeof(float)))) {
    throw damaged(fmt::format("{} bytes follow its header, which says {}", held.size(),
                              abridged(std::string(trimmed(header)))));
  }
  at::Tensor tensor = at::empty(*shape, at::kFloat);
  if (!held.empty()) std::memcpy(tensor.mutable_data_ptr(), held.data(), held.size());
  return tensor;
}

}  // namespace adtrain
