#include "data/HistorySettings.h"

#include <array>
#include <set>

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

/// What a configuration says instead of a setting that files have only where it is used; null for all others,
/// which every file that says its settings has.
const char* value_where_absent(const std::string& name) {
  if (name == "source_policies") return "1";
  return name == "kept_streams" || name == "env_group" ? "null" : nullptr;
}

HistorySettings of_both(const HistorySettings& one, const HistorySettings& other) {
  HistorySettings all = one;
  all.insert(other.begin(), other.end());
  return all;
}

}  // namespace

bool determines_the_values(const std::string& name) {
  // Those of collection/CollectionSettings.h, which tests hold beside these.
  static const std::set<std::string> names = {"env",
                                              "grid_size",
                                              "horizon",
                                              "alg",
                                              "alg_seed",
                                              "n_stream",
                                              "n_steps",
                                              "batch_size",
                                              "n_epochs",
                                              "total_source_timesteps",
                                              "source_lr",
                                              "gamma",
                                              "gae_lambda",
                                              "clip_range",
                                              "ent_coef",
                                              "vf_coef",
                                              "env_worker",
                                              "env_group",
                                              "kept_streams",
                                              "source_max_grad_norm",
                                              "clip_actions",
                                              "source_policies",
                                              "terminal_next_states",
                                              "max_episode_steps",
                                              "source_hidden_units",
                                              "source_normalize_observations"};
  return names.contains(name);
}

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
  HistorySettings said = found;
  std::erase_if(said, [&](const auto& attribute) {
    const std::string& name = attribute.first;
    return !determines_the_values(name) && !tells_nothing_of_the_values(name) && !expected.contains(name);
  });
  if (said.empty() || expected.empty()) return;
  std::vector<std::string> contradictions, to_restore, to_add;
  for (const auto& [name, ignored] : of_both(said, expected)) {
    if (tells_nothing_of_the_values(name)) continue;
    const std::string held = value_of(said, name), wanted = value_of(expected, name);
    if (held == wanted) continue;
    contradictions.push_back(fmt::format("{} {} (the configuration says {})", name, held, wanted));
    const char* const unused = value_where_absent(name);
    if (said.contains(name)) {
      to_restore.push_back(fmt::format("--set {}={}", name, held));
    } else if (unused != nullptr) {
      to_restore.push_back(fmt::format("--set {}={}", name, unused));
    } else {
      to_add.push_back(fmt::format("file.attrs['{}'] = '{}'", name, wanted));
    }
  }
  if (contradictions.empty()) return;
  std::vector<std::string> ways;
  if (!to_restore.empty()) ways.push_back(fmt::format("use this file with {}", join(to_restore, " ")));
  if (!to_add.empty()) {
    ways.push_back(
        fmt::format("let the file say what it lacks, if it was collected so (h5py: {})", join(to_add, "; ")));
  }
  ways.emplace_back("choose another traj_dir or alg_seed and collect there");
  ways.emplace_back("replace the file by `adtrain collect` with --overwrite");
  throw DataError(fmt::format("{}: was collected with {}; expected the configuration's own settings: {}",
                              file.string(), join(contradictions, ", "), join(ways, "; or ")));
}

}  // namespace adtrain
