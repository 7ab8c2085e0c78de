#pragma once

#include <cstddef>
#include <cstdint>

namespace adtrain {

/// The attribute of a data set that holds checksum_of its values as they are stored, uncompressed.
inline constexpr const char* kChecksumAttribute = "crc32";

/// CRC-32, zlib's and Python's zlib.crc32, so that `zlib.crc32(dataset[()].tobytes())` is the attribute.
/// Thread-safe.
uint32_t checksum_of(const void* bytes, size_t size);

}  // namespace adtrain
