#include "data/HistoryChecksum.h"

#include <zlib.h>

namespace adtrain {

uint32_t checksum_of(const void* bytes, size_t size) {
  return static_cast<uint32_t>(crc32_z(0, static_cast<const Bytef*>(bytes), size));
}

}  // namespace adtrain
