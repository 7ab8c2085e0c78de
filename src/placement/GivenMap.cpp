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

/// What users call all blocks, whatever the network calls them.
constexpr const char* kBlocks = "blocks";

/// "blocks.3" for "transformer.blocks.3", else the module's own name.
std::string documented_name(const PlacedModule& module) {
  return module.is_block ? kBlocks + module.name.substr(module.name.rfind('.')) : module.name;
}

/// "transformer.blocks.3" for "blocks.3", where that is what the network calls it.
std::string name_in_network(const std::string& name, const PlacedModule& module) {
  const std::string prefix = kBlocks;
  if (!module.is_block || (name != prefix && !name.starts_with(prefix + "."))) return name;
  return module.name.substr(0, module.name.rfind('.')) + name.substr(prefix.size());
}

/// Whether a name of the network is this one, or begins with it up to a dot. All begin with "".
bool begins_with(const std::string& part, const std::string& name) {
  return name.empty() || part == name || part.starts_with(name + ".");
}

/// The line that says where a part is: the longest name that it begins with, else that of its whole module.
/// Lengths are those of the network's names.
Named* line_for(std::vector<Named>& map, const std::string& part, const PlacedModule& module) {
  Named *best = nullptr, *of_module = nullptr;
  size_t longest = 0;
  for (Named& line : map) {
    if (line.name == module.name && line.name != part) of_module = &line;
    const std::string name = name_in_network(line.name, module);
    if (!begins_with(part, name) || (best != nullptr && name.size() <= longest)) continue;
    best = &line;
    longest = name.size();
  }
  return of_module != nullptr && (best == nullptr || best->name.empty()) ? of_module : best;
}

std::vector<std::string> names_to_use(const std::vector<PlacedModule>& modules) {
  std::vector<std::string> names;
  for (const PlacedModule& module : modules) {
    names.push_back(documented_name(module));
    names.insert(names.end(), module.parts.begin(), module.parts.end());
    if (module.is_block) names.insert(names.end(), {kBlocks, name_in_network(kBlocks, module)});
  }
  return names;
}

bool fits_a_module(const std::string& name, const std::vector<PlacedModule>& modules) {
  return std::ranges::any_of(modules, [&](const PlacedModule& module) {
    return name == module.name || std::ranges::any_of(module.parts, [&](const std::string& part) {
             return begins_with(part, name_in_network(name, module));
           });
  });
}

/// To be called before a module without a device is reported: a misspelt name may have been meant for it.
void refuse_unknown_names(const std::vector<Named>& map, const std::vector<PlacedModule>& modules) {
  for (const Named& line : map) {
    if (fits_a_module(line.name, modules)) continue;
    const std::string nearest = nearest_name(line.name, names_to_use(modules));
    throw ConfigError(fmt::format(
        "device_map: found {}, which places no module: there is none of this name, or it is within a block, "
        "which is never split; expected {}, … {}{}",
        quoted(line.name), documented_name(modules.front()), documented_name(modules.back()),
        nearest.empty() ? "" : fmt::format("; did you mean {}?", nearest)));
  }
}

MapDevice device_for(const PlacedModule& module, std::vector<Named>& map) {
  const Named* first = nullptr;
  std::string first_part;
  for (const std::string& part : module.parts) {
    Named* const line = line_for(map, part, module);
    if (line == nullptr) {
      throw ConfigError(
          fmt::format("device_map: found no device for {}; expected one for every module: add \"{}: 0\"",
                      part, documented_name(module)));
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
  refuse_unknown_names(map, modules);
  std::vector<MapDevice> devices;
  for (const PlacedModule& module : modules) devices.push_back(device_for(module, map));
  for (const Named& line : map) {
    if (line.used) continue;
    throw ConfigError(
        fmt::format("device_map: found {}, which places no module: other names place all that is in it; "
                    "expected no such line: leave it out",
                    quoted(line.name)));
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
