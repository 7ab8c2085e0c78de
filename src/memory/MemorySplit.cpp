#include "memory/MemorySplit.h"

#include <algorithm>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "memory/MemoryMeter.h"

namespace adtrain {

int64_t MemorySplit::total() const {
  int64_t sum = 0;
  for (const MemoryPart& part : kMemoryParts) sum += this->*part.bytes;
  return sum;
}

std::string gigabytes(int64_t bytes) {
  return fmt::format("{:.2f} GB", static_cast<double>(bytes) / kBytesOfGigabyte);
}

std::string text_of(const MemorySplit& split) {
  std::array<MemoryPart, kMemoryParts.size()> parts = kMemoryParts;
  std::ranges::stable_sort(
      parts, [&](const MemoryPart& a, const MemoryPart& b) { return split.*a.bytes > split.*b.bytes; });
  std::vector<std::string> words;
  for (const auto& [name, bytes] : parts) {
    if (split.*bytes > split.total() / 100)
      words.push_back(fmt::format("{} {}", name, gigabytes(split.*bytes)));
  }
  return fmt::format("{}", fmt::join(words, ", "));
}

nlohmann::ordered_json to_json(const MemorySplit& split) {
  nlohmann::ordered_json parts;
  for (const auto& [name, bytes] : kMemoryParts) parts[name] = split.*bytes;
  return parts;
}

}  // namespace adtrain
