#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

namespace adtrain {

/// CRC-32 as zlib's and Python's zlib.crc32 compute it. Thread-safe.
uint32_t checksum_of(const void* bytes, size_t size);

/// The same as eight hexadecimal digits.
std::string checksum_text(const void* bytes, size_t size);
inline std::string checksum_text(std::string_view bytes) {
  return checksum_text(bytes.data(), bytes.size());
}

}  // namespace adtrain
