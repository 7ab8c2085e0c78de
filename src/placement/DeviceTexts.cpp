#include "placement/DeviceTexts.h"

#include <cstdint>

#include <fmt/format.h>
#include <yaml-cpp/yaml.h>

#include "base/Error.h"
#include "base/Text.h"
#include "config/OneDocument.h"
#include "config/Scalar.h"

namespace adtrain {

std::vector<std::pair<std::string, std::string>> lines_of_map(const std::string& key, const std::string& text,
                                                              const std::string& expected) {
  YAML::Node root;
  try {
    root = OneDocument::parse(text).root;
  } catch (const YAML::Exception&) {
    root = YAML::Node();
  }
  if (!root.IsMap() || root.size() == 0)
    throw ConfigError(fmt::format("{}: found '{}'; {}", key, abridged(text), expected));
  const auto text_of = [](const YAML::Node& node) { return node.IsScalar() ? node.Scalar() : std::string(); };
  std::vector<std::pair<std::string, std::string>> lines;
  for (const auto& pair : root) lines.emplace_back(text_of(pair.first), text_of(pair.second));
  return lines;
}

std::optional<int> gpu_number(const std::string& text) {
  constexpr int64_t kMostGpus = 1024;
  const auto number = Scalar<int64_t>::parse(text);
  if (!number || *number < 0 || *number >= kMostGpus) return std::nullopt;
  return static_cast<int>(*number);
}

}  // namespace adtrain
