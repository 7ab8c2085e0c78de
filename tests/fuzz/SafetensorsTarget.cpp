#include "base/Error.h"
#include "checkpoint/SafetensorsHeader.h"
#include "fuzz/Targets.h"

namespace adtrain::fuzz {

void safetensors(std::string_view bytes) {
  try {
    const SafetensorsHeader header = SafetensorsHeader::parse(bytes, "fuzzed.safetensors");
    uint64_t position = 0;
    for (const SafetensorsHeader::Entry& entry : header.entries) {
      require(entry.begin == position && entry.end >= entry.begin, "data follow one another");
      position = entry.end;
    }
    require(position == header.data.size(), "tensors cover the data");
  } catch (const CheckpointError&) {
  }
}

}  // namespace adtrain::fuzz
