#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

namespace adtrain {

/// A device of a map: a GPU among those that a rank may use, numbered from 0, or the host's memory.
struct MapDevice {
  static constexpr int kCpu = -1;
  int gpu = kCpu;

  bool is_cpu() const { return gpu == kCpu; }
  std::string text() const { return is_cpu() ? "cpu" : std::to_string(gpu); }
  auto operator<=>(const MapDevice&) const = default;
};

/// How much of each device's memory a map may use. A value.
struct MemoryLimits {
  std::map<int, int64_t> gpus;  ///< bytes by number, ascending
  std::optional<int64_t> cpu;   ///< nothing: no module may be there
  bool from_user = false;       ///< whether max_memory says them; else they are what is free

  /// Of max_memory as YAML: "{0: 10GiB, 1: 9GB, cpu: 30GiB}". GiB, MiB and KiB are binary, GB, MB and KB
  /// decimal; a plain number is bytes. Throws ConfigError that says what is wrong with which device.
  static MemoryLimits parse(const std::string& text);
  std::optional<int64_t> of(const MapDevice& device) const;
};

/// "10GiB" -> bytes; nothing for what is no size.
std::optional<int64_t> parsed_bytes(const std::string& text);

}  // namespace adtrain
