#include "data/HistorySettings.h"

#include <array>

#include <fmt/format.h>

#include "base/Error.h"
#include "base/Text.h"

namespace adtrain {
namespace {

constexpr const char* kAbsent = "absent";

std::string value_of(const HistorySettings& settings, const std::string& name) {
  const auto found = settings.find(name);
  return found == settings.end() ? kAbsent : found->second;
}

/// Whether a setting may differ without changing the values, or describes only the file itself.
bool tells_nothing_of_the_values(const std::string& name) {
  constexpr std::array<const char*, 13> kNames = {
      "history_compression",    "collected_on",      "tasks",          kTaskNumbers,
      "write_compress_markers", "optimal_actions",   "format_version", kContentChecksum,
      "adtrain-format",         "observation-space", "action-space",   "axes",
      "env_random_episodes"};
  for (const char* known : kNames) {
    if (name == known) return true;
  }
  return false;
}

HistorySettings of_both(const HistorySettings& one, const HistorySettings& other) {
  HistorySettings all = one;
  all.insert(other.begin(), other.end());
  return all;
}

}  // namespace

std::vector<std::string> differences(const HistorySettings& before, const HistorySettings& now) {
  std::vector<std::string> list;
  for (const auto& [name, ignored] : of_both(before, now)) {
    const std::string old_value = value_of(before, name), new_value = value_of(now, name);
    if (old_value != new_value)
      list.push_back(fmt::format("{} was {} and is {}", name, abridged(old_value), abridged(new_value)));
  }
  return list;
}

void check_collected_with(const std::filesystem::path& file, const HistorySettings& found,
                          const HistorySettings& expected) {
  if (found.empty() || expected.empty()) return;
  std::vector<std::string> contradictions, to_restore;
  for (const auto& [name, ignored] : of_both(found, expected)) {
    if (tells_nothing_of_the_values(name)) continue;
    const std::string held = value_of(found, name), wanted = value_of(expected, name);
    if (held == wanted) continue;
    contradictions.push_back(fmt::format("{} {} (the configuration says {})", name, held, wanted));
    to_restore.push_back(fmt::format("--set {}={}", name, held == kAbsent ? "null" : held));
  }
  if (contradictions.empty()) return;
  throw DataError(fmt::format(
      "{}: was collected with {}; expected the configuration's own settings. Use this file with {}; or "
      "choose another traj_dir or alg_seed and collect there; or replace the file by `adtrain collect` "
      "with --overwrite",
      file.string(), join(contradictions, ", "), join(to_restore, " ")));
}

}  // namespace adtrain
