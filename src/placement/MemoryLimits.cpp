#include "placement/MemoryLimits.h"

#include <array>
#include <cmath>
#include <utility>

#include <fmt/format.h>

#include "base/Error.h"
#include "base/Text.h"
#include "config/Scalar.h"
#include "placement/DeviceTexts.h"

namespace adtrain {

std::optional<int64_t> parsed_bytes(const std::string& text) {
  constexpr double kKibi = 1024, kKilo = 1000;
  static const std::array<std::pair<std::string, double>, 9> kUnits = {
      {{"TiB", kKibi * kKibi * kKibi * kKibi},
       {"GiB", kKibi * kKibi * kKibi},
       {"MiB", kKibi * kKibi},
       {"KiB", kKibi},
       {"TB", kKilo * kKilo * kKilo * kKilo},
       {"GB", kKilo * kKilo * kKilo},
       {"MB", kKilo * kKilo},
       {"KB", kKilo},
       {"B", 1}}};
  std::string number = text;
  double unit = 1;
  for (const auto& [name, factor] : kUnits) {
    if (!text.ends_with(name)) continue;
    number = text.substr(0, text.size() - name.size());
    unit = factor;
    break;
  }
  while (number.ends_with(' ')) number.pop_back();
  const auto value = Scalar<double>::parse(number);
  constexpr double kMost = 1e18;
  if (!value || !(*value >= 0) || *value * unit > kMost) return std::nullopt;
  return static_cast<int64_t>(std::floor(*value * unit));
}

MemoryLimits MemoryLimits::parse(const std::string& text) {
  constexpr const char* kExpected = "expected a map such as {0: 10GiB, 1: 9GB, cpu: 30GiB}";
  MemoryLimits limits;
  limits.from_user = true;
  for (const auto& [device, size] : lines_of_map("max_memory", text, kExpected)) {
    const auto bytes = parsed_bytes(size);
    if (!bytes) {
      throw ConfigError(fmt::format(
          "max_memory: found '{}' for {}; expected a size such as 10GiB (binary), 9GB (decimal) or a number "
          "of bytes",
          abridged(size), abridged(device)));
    }
    const auto gpu = gpu_number(device);
    if (device != "cpu" && !gpu) {
      throw ConfigError(
          fmt::format("max_memory: found the device '{}'; expected the number of a GPU, from 0, or "
                      "cpu; {}",
                      abridged(device), kExpected));
    }
    const bool is_new = gpu ? limits.gpus.emplace(*gpu, *bytes).second : !limits.cpu;
    if (!is_new)
      throw ConfigError(fmt::format("max_memory: found {} twice; expected one limit for it", device));
    if (!gpu) limits.cpu = bytes;
  }
  return limits;
}

std::optional<int64_t> MemoryLimits::of(const MapDevice& device) const {
  if (device.is_cpu()) return cpu;
  const auto found = gpus.find(device.gpu);
  return found == gpus.end() ? std::nullopt : std::optional(found->second);
}

}  // namespace adtrain
