#include "placement/PlacedModules.h"

#include <algorithm>
#include <array>
#include <cctype>
#include <map>
#include <numeric>
#include <optional>

namespace adtrain {
namespace {

/// "blocks.3" of "blocks.3.mlp.up.weight"; nothing for what is in no block.
std::optional<std::string> block_of(const std::string& name) {
  constexpr std::array<const char*, 4> kStacks = {"blocks.", "transformer.blocks.",
                                                  "transformer_encoder.layers.", "transformer.h."};
  for (const std::string stack : kStacks) {
    if (!name.starts_with(stack)) continue;
    size_t end = stack.size();
    while (end < name.size() && std::isdigit(static_cast<unsigned char>(name[end])) != 0) ++end;
    if (end > stack.size() && end < name.size() && name[end] == '.') return name.substr(0, end);
  }
  return std::nullopt;
}

/// What holds a parameter itself: its name without the last part.
std::string layer_of(const std::string& name) {
  const size_t dot = name.rfind('.');
  return dot == std::string::npos ? name : name.substr(0, dot);
}

/// The module of a network's outermost level, or of that of its group of spaces: "groups.grid.observation".
std::string outermost_of(const std::string& name) {
  size_t dot = name.find('.');
  if (name.starts_with("groups.") && dot != std::string::npos) {
    dot = name.find('.', dot + 1);
    if (dot != std::string::npos) dot = name.find('.', dot + 1);
  }
  return dot == std::string::npos ? name : name.substr(0, dot);
}

/// The places of parameters.
std::vector<size_t> in_order_of_use(const std::vector<SizedParameter>& parameters) {
  std::vector<size_t> order(parameters.size());
  std::iota(order.begin(), order.end(), 0);
  std::ranges::stable_partition(order, [&](size_t i) { return !parameters[i].is_behind_blocks; });
  return order;
}

void add_once(std::vector<std::string>& names, const std::string& name) {
  if (std::ranges::find(names, name) == names.end()) names.push_back(name);
}

}  // namespace

std::vector<PlacedModule> placed_modules(const std::vector<SizedParameter>& parameters) {
  std::vector<PlacedModule> modules;
  std::map<std::string, size_t> module_of_parameter;
  std::string layer;
  bool behind = false;
  for (const size_t number : in_order_of_use(parameters)) {
    const SizedParameter& parameter = parameters[number];
    const std::optional<std::string> block = block_of(parameter.name);
    behind = behind || block || parameter.is_behind_blocks;
    const std::string name = block ? *block : behind ? "head" : "embeddings";
    if (modules.empty() || modules.back().name != name) {
      modules.push_back(
          {.name = name, .is_block = block.has_value(), .parts = {}, .layers = {}, .shares_with = {}});
      layer.clear();
    }
    PlacedModule& module = modules.back();
    module.parameters.push_back(number);
    add_once(module.parts, block ? *block : outermost_of(parameter.name));
    const size_t place = modules.size() - 1;
    module_of_parameter[parameter.name] = place;
    if (parameter.shared_with.empty()) {
      if (module.layers.empty() || layer_of(parameter.name) != layer) module.layers.push_back(0);
      layer = layer_of(parameter.name);
      module.bytes += parameter.bytes;
      module.layers.back() += parameter.bytes;
      continue;
    }
    const size_t other = module_of_parameter.at(parameter.shared_with);
    if (other == place) continue;
    module.shares_with.push_back(other);
    modules[other].shares_with.push_back(place);
  }
  return modules;
}

int64_t total_bytes(const std::vector<PlacedModule>& modules) {
  return std::accumulate(modules.begin(), modules.end(), int64_t{0},
                         [](int64_t sum, const PlacedModule& module) { return sum + module.bytes; });
}

int64_t total_kept(const std::vector<PlacedModule>& modules) {
  return std::accumulate(modules.begin(), modules.end(), int64_t{0},
                         [](int64_t sum, const PlacedModule& module) { return sum + module.kept; });
}

}  // namespace adtrain
