#include "base/Checksum.h"

#include <fmt/format.h>
#include <zlib.h>

namespace adtrain {

uint32_t checksum_of(const void* bytes, size_t size) {
  return static_cast<uint32_t>(crc32_z(0, static_cast<const Bytef*>(bytes), size));
}

std::string checksum_text(const void* bytes, size_t size) {
  return fmt::format("{:08x}", checksum_of(bytes, size));
}

}  // namespace adtrain
