#include <algorithm>
#include <map>
#include <optional>
#include <string>

#include "base/Error.h"
#include "fuzz/Targets.h"
#include "launch/LaunchContext.h"
#include "launch/SlurmNotation.h"

namespace adtrain::fuzz {
namespace {

/// NAME=VALUE lines.
std::map<std::string, std::string> variables_of(std::string_view text) {
  std::map<std::string, std::string> variables;
  while (!text.empty()) {
    const std::string_view line = text.substr(0, text.find('\n'));
    if (const size_t equals = line.find('='); equals != std::string_view::npos) {
      variables.emplace(line.substr(0, equals), line.substr(equals + 1));
    }
    text.remove_prefix(std::min(text.size(), line.size() + 1));
  }
  return variables;
}

}  // namespace

void slurm(std::string_view bytes) {
  const std::string text(bytes);
  require(first_host(text).size() <= text.size(), "a host's name is a part of the list");
  for (const int64_t node : {int64_t{0}, int64_t{1}, int64_t{1} << 40}) {
    require(tasks_on_node(text, node) >= 0, "a node has no fewer than 0 tasks");
  }
}

void launch(std::string_view bytes) {
  const std::map<std::string, std::string> variables = variables_of(bytes);
  const EnvironmentLookup lookup = [&](const std::string& name) -> std::optional<std::string> {
    const auto found = variables.find(name);
    return found == variables.end() || found->second.empty() ? std::nullopt : std::optional(found->second);
  };
  try {
    const LaunchContext context = LaunchContext::detect({}, lookup);
    require(context.rank >= 0 && context.rank < context.world_size, "a rank is one of the world's");
    require(context.local_rank >= 0 && context.local_rank < context.local_world_size,
            "a local rank is one of the host's");
  } catch (const EnvironmentError&) {
  }
}

}  // namespace adtrain::fuzz
