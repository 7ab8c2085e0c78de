#include "placement/PlacementOptions.h"

#include <map>

#include <fmt/format.h>

#include "base/Error.h"
#include "base/Text.h"

namespace adtrain {
namespace {

const std::map<std::string, MapMode>& modes() {
  static const std::map<std::string, MapMode> kModes = {{"auto", MapMode::kBalanced},
                                                        {"balanced", MapMode::kBalanced},
                                                        {"balanced_low_0", MapMode::kBalancedLow0},
                                                        {"sequential", MapMode::kSequential}};
  return kModes;
}

/// Adds what `read` throws, without the key's name at its begin.
template <class Read>
void add_fault(Findings& findings, const std::string& key, const Read& read) {
  try {
    read();
  } catch (const ConfigError& error) {
    const std::string text = error.what(), begin = key + ": ";
    findings.add(key, text.starts_with(begin) ? text.substr(begin.size()) : text);
  }
}

}  // namespace

void PlacementOptions::declare(Section& section) {
  section.key(
      "device_map", device_map,
      "Spreads a network over the GPUs of each rank in adtrain score and adtrain evaluate: auto or balanced "
      "for equal parts, balanced_low_0 to spare the first GPU, sequential to fill one after the other, or a "
      "map of modules to GPUs and cpu, such as {embeddings: 0, blocks: 0, blocks.3: 1, head: 1}. null: each "
      "rank computes on one device.");
  section.key(
      "max_memory", max_memory,
      "How much of each GPU's memory, and of the host's (cpu), a device_map may use: {0: 10GiB, 1: 9GB, cpu: "
      "30GiB}. GPUs and cpu that are not named get nothing. null: what is free. Without GPUs the numbers are "
      "logical devices on the CPU.");
  section.all_free_on_resume();
}

void PlacementOptions::check(Findings& findings) const {
  if (max_memory) add_fault(findings, "max_memory", [&] { MemoryLimits::parse(*max_memory); });
  if (!device_map || mode()) return;
  if (!device_map->starts_with('{')) {
    std::vector<std::string> names;
    for (const auto& [name, mode] : modes()) names.push_back(name);
    const std::string nearest = nearest_name(*device_map, names);
    findings.add(
        "device_map",
        fmt::format("found '{}'; expected {}, or a map of modules such as {{embeddings: 0, blocks: 0, "
                    "blocks.3: 1, head: 1}}{}",
                    abridged(*device_map), join(names, ", "),
                    nearest.empty() ? "" : fmt::format("; did you mean {}?", nearest)));
    return;
  }
  add_fault(findings, "device_map", [&] { devices_in_map(*device_map); });
}

std::vector<std::string> PlacementOptions::notices() const {
  if (device_map || !max_memory) return {};
  return {
      "max_memory has no effect: it limits the devices of a device_map, and the network is on one device"};
}

std::optional<MapMode> PlacementOptions::mode() const {
  const auto found = modes().find(device_map.value_or(""));
  return found == modes().end() ? std::nullopt : std::optional(found->second);
}

std::optional<MemoryLimits> PlacementOptions::limits() const {
  return max_memory ? std::optional(MemoryLimits::parse(*max_memory)) : std::nullopt;
}

}  // namespace adtrain
