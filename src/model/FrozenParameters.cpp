#include "model/FrozenParameters.h"

#include <map>
#include <optional>
#include <set>

#include <fmt/format.h>

#include "base/Error.h"
#include "base/Text.h"
#include "base/Words.h"
#include "model/ParameterNames.h"
#include "model/ParameterPatterns.h"

namespace adtrain {
namespace {

/// Whether a gradient of the parameter goes through none of the blocks, as it comes after them or the network
/// never uses it.
bool needs_no_block(const ModelOptions& options, const std::string& name) {
  const bool marker = name == "compress_start_token" || name == "compress_end_token";
  return comes_after_blocks(name) || (marker && !options.compressed());
}

}  // namespace

void freeze(ParameterBuffer& parameters, const std::string& patterns, const std::string& place) {
  if (trimmed(patterns).empty()) return;
  std::vector<std::string> names;
  for (const auto& [name, tensor] : parameters.named()) names.push_back(name);
  const std::set<std::string> frozen = names_that_fit(patterns, names, place);
  if (frozen.size() == names.size()) {
    throw ConfigError(
        fmt::format("{}: found '{}', which freezes all {} parameters; expected some that train, such as {}",
                    place, abridged(patterns), names.size(), names.back()));
  }
  parameters.freeze(frozen);
}

std::vector<std::string> frozen_modules(const ParameterBuffer& parameters) {
  const std::vector<std::string> frozen = parameters.frozen_names();
  const std::set<std::string> all_frozen(frozen.begin(), frozen.end());
  std::set<std::string> training;  // modules with a parameter that trains
  for (const auto& [name, tensor] : parameters.named()) {
    if (all_frozen.contains(name)) continue;
    for (std::string& beginning : beginnings_of(name)) training.insert(std::move(beginning));
  }
  std::vector<std::string> modules;
  for (const std::string& name : frozen) {
    for (const std::string& beginning : beginnings_of(name)) {
      if (training.contains(beginning)) continue;
      if (modules.empty() || modules.back() != beginning) modules.push_back(beginning);
      break;
    }
  }
  return modules;
}

RemainingBackward remaining_backward(const ModelOptions& options, const ParameterBuffer& parameters) {
  RemainingBackward remaining;
  const std::vector<std::string> frozen = parameters.frozen_names();
  if (frozen.empty() || options.is_plugin()) return remaining;
  const std::set<std::string> all_frozen(frozen.begin(), frozen.end());
  remaining.forward_only = options.tf_n_layer;
  std::map<int64_t, int64_t> sizes;
  std::set<int64_t> with_frozen;
  for (const auto& [name, tensor] : parameters.named()) {
    const std::optional<int64_t> block = block_number(name);
    if (block) sizes[*block] += tensor.numel();
    if (all_frozen.contains(name)) {
      if (block) with_frozen.insert(*block);
    } else if (block) {
      remaining.forward_only = std::min(remaining.forward_only, *block);
    } else if (!needs_no_block(options, name)) {
      remaining.forward_only = 0;
    }
  }
  for (const int64_t block : with_frozen) {
    if (block < remaining.forward_only) continue;
    remaining.partly.push_back(block);
    remaining.largest_partly_bytes =
        std::max(remaining.largest_partly_bytes, sizes[block] * static_cast<int64_t>(sizeof(float)));
  }
  return remaining;
}

}  // namespace adtrain
