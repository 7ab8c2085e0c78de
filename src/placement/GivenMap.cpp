#include <algorithm>
#include <optional>
#include <utility>

#include <fmt/format.h>

#include "base/Error.h"
#include "base/Text.h"
#include "placement/DeviceMap.h"
#include "placement/DeviceTexts.h"

namespace adtrain {
namespace {

constexpr const char* kExample =
    "expected a map of modules such as {embeddings: 0, blocks: 0, blocks.3: 1, head: 1}";

/// "1", "cuda:1" or "cpu".
std::optional<MapDevice> device_of(const std::string& text) {
  if (text == "cpu") return MapDevice{};
  const std::string prefix = "cuda:";
  const auto gpu = gpu_number(text.starts_with(prefix) ? text.substr(prefix.size()) : text);
  return gpu ? std::optional(MapDevice{*gpu}) : std::nullopt;
}

/// A line of the map.
struct Named {
  std::string name;
  MapDevice device;
  bool used = false;
};

/// A name in a message.
std::string quoted(const std::string& name) {
  return name.empty() ? "\"\" (everything)" : fmt::format("'{}'", abridged(name));
}

std::vector<Named> read(const std::string& text) {
  std::vector<Named> map;
  for (const auto& [name, device] : lines_of_map("device_map", text, kExample)) {
    const auto found = device_of(device);
    if (!found) {
      throw ConfigError(fmt::format(
          "device_map: found '{}' for {}; expected the number of a GPU, from 0, or cpu{}", abridged(device),
          quoted(name), device == "disk" ? ": weights are not read from disk while the network runs" : ""));
    }
    if (std::ranges::find(map, name, &Named::name) != map.end()) {
      throw ConfigError(fmt::format("device_map: found {} twice; expected one device for it", quoted(name)));
    }
    map.push_back({name, *found});
  }
  return map;
}

/// What a part may be called: also "blocks.3", whatever the network calls its blocks.
std::vector<std::string> names_of(const std::string& part, const PlacedModule& module) {
  if (!module.is_block) return {part};
  return {part, "blocks" + part.substr(part.rfind('.'))};
}

/// The line that says where a part is: the longest name that it begins with, else that of its whole module.
Named* line_for(std::vector<Named>& map, const std::string& part, const PlacedModule& module) {
  const std::vector<std::string> names = names_of(part, module);
  Named *best = nullptr, *of_module = nullptr;
  for (Named& line : map) {
    if (line.name == module.name && line.name != part) of_module = &line;
    const bool fits = line.name.empty() || std::ranges::any_of(names, [&](const std::string& name) {
                        return name == line.name || name.starts_with(line.name + ".");
                      });
    if (fits && (best == nullptr || line.name.size() > best->name.size())) best = &line;
  }
  return of_module != nullptr && (best == nullptr || best->name.empty()) ? of_module : best;
}

std::vector<std::string> names_to_use(const std::vector<PlacedModule>& modules) {
  std::vector<std::string> names;
  for (const PlacedModule& module : modules) {
    names.push_back(module.name);
    names.insert(names.end(), module.parts.begin(), module.parts.end());
    if (const size_t dot = module.name.rfind('.'); module.is_block && dot != std::string::npos)
      names.push_back(module.name.substr(0, dot));
  }
  return names;
}

MapDevice device_for(const PlacedModule& module, std::vector<Named>& map) {
  const Named* first = nullptr;
  std::string first_part;
  for (const std::string& part : module.parts) {
    Named* const line = line_for(map, part, module);
    if (line == nullptr) {
      throw ConfigError(fmt::format(
          "device_map: found no device for {}; expected one for every module: add \"{}: 0\"", part, part));
    }
    line->used = true;
    if (first == nullptr) {
      first = line;
      first_part = part;
    } else if (first->device != line->device) {
      throw ConfigError(fmt::format(
          "device_map: found {} on {} and {} on {}; expected one device for both: all modules {} the "
          "blocks compute together, and one line \"{}: {}\" places them",
          first_part, first->device.text(), part, line->device.text(),
          module.name == "head" ? "behind" : "before", module.name, first->device.text()));
    }
  }
  return first->device;
}

}  // namespace

std::vector<MapDevice> devices_in_map(const std::string& text) {
  std::vector<MapDevice> devices;
  for (const Named& line : read(text)) devices.push_back(line.device);
  std::ranges::sort(devices);
  const auto repeated = std::ranges::unique(devices);
  devices.erase(repeated.begin(), repeated.end());
  return devices;
}

DeviceMap DeviceMap::given(const std::string& text, const std::vector<PlacedModule>& modules,
                           const MemoryLimits& limits, const ContextMemory& context) {
  std::vector<Named> map = read(text);
  std::vector<MapDevice> devices;
  for (const PlacedModule& module : modules) devices.push_back(device_for(module, map));
  for (const Named& line : map) {
    if (line.used) continue;
    const std::string nearest = nearest_name(line.name, names_to_use(modules));
    throw ConfigError(fmt::format(
        "device_map: found {}, which places no module: there is none of this name, or longer names "
        "place all that is in it, or it is within a block, which is never split; expected {}, … {}{}",
        quoted(line.name), modules.front().name, modules.back().name,
        nearest.empty() ? "" : fmt::format("; did you mean {}?", nearest)));
  }
  for (size_t i = 0; i < modules.size(); ++i) {
    for (const size_t other : modules[i].shares_with) {
      if (devices[other] == devices[i]) continue;
      throw ConfigError(
          fmt::format("device_map: found {} on {} and {} on {}, which have tensors in common; expected "
                      "one device for both",
                      modules[i].name, devices[i].text(), modules[other].name, devices[other].text()));
    }
    if (limits.of(devices[i])) continue;
    std::vector<std::string> there;
    for (const auto& [gpu, bytes] : limits.gpus) there.push_back(MapDevice{gpu}.text());
    if (limits.cpu) there.push_back("cpu");
    throw ConfigError(
        fmt::format("device_map: found {} on {}; expected one of the devices that are there, or that "
                    "max_memory names: {}",
                    modules[i].name, devices[i].text(), there.empty() ? "none" : join(there, ", ")));
  }
  DeviceMap result(modules, std::move(devices), limits, context);
  for (const Row& row : result.rows_) {
    if (row.spare >= 0) continue;
    throw ConfigError(
        fmt::format("device_map: {} exceeds the limit of {} by {}, with {} for activations on each GPU; "
                    "expected modules that fit: move some, or raise max_memory",
                    row.module, row.device.text(), human_bytes(static_cast<double>(-row.spare)),
                    human_bytes(static_cast<double>(context.of_gpu))));
  }
  result.check_room_to_stream();
  return result;
}

}  // namespace adtrain
