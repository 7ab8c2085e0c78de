#pragma once

#include <optional>
#include <string>
#include <utility>
#include <vector>

/// How users write device_map and max_memory.
namespace adtrain {

/// The lines of a YAML map of scalars, in its order; for what is no scalar an empty text. Throws ConfigError,
/// which names `key` and ends with `expected`, where the text is no map, or an empty one.
std::vector<std::pair<std::string, std::string>> lines_of_map(const std::string& key, const std::string& text,
                                                              const std::string& expected);

/// The number of a GPU; no value where the text is none.
std::optional<int> gpu_number(const std::string& text);

}  // namespace adtrain
