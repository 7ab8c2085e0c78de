#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

namespace adtrain {

/// CRC-32 as zlib's and Python's zlib.crc32 compute it, of many bytes by several threads. Thread-safe.
uint32_t checksum_of(const void* bytes, size_t size);

/// Of two pieces, one behind the other, from the checksum of each and the size of the second.
uint32_t joined_checksum(uint32_t first, uint32_t second, size_t second_size);

/// A checksum as eight hexadecimal digits.
std::string checksum_text(uint32_t checksum);
/// The same of bytes.
std::string checksum_text(const void* bytes, size_t size);
inline std::string checksum_text(std::string_view bytes) {
  return checksum_text(bytes.data(), bytes.size());
}

}  // namespace adtrain
