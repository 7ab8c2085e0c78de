#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <string>
#include <string_view>

namespace adtrain {

/// CRC-32 as zlib's and Python's zlib.crc32 compute it. Thread-safe.
uint32_t checksum_of(const void* bytes, size_t size);

/// Of two pieces, one behind the other, from the checksum of each and the size of the second.
uint32_t joined_checksum(uint32_t first, uint32_t second, size_t second_size);
constexpr uint32_t kChecksumOfNothing = 0;

/// Of `size` bytes, from of_piece(first, length): the checksums of pieces of them, which several threads ask
/// for at once. For large files and tensors.
uint32_t checksum_of_pieces(size_t size,
                            const std::function<uint32_t(size_t first, size_t length)>& of_piece);
/// The same of bytes in memory.
uint32_t checksum_by_threads(const void* bytes, size_t size);

/// A checksum as eight hexadecimal digits.
std::string checksum_text(uint32_t checksum);
/// The same of bytes.
std::string checksum_text(const void* bytes, size_t size);
inline std::string checksum_text(std::string_view bytes) {
  return checksum_text(bytes.data(), bytes.size());
}

}  // namespace adtrain
