#include "run/figures/RunGroups.h"

#include <algorithm>
#include <array>
#include <string_view>

#include <fmt/format.h>

#include "base/Text.h"
#include "run/RunConfig.h"

namespace adtrain {
namespace {

constexpr std::array<std::string_view, 26> kRepeating = {
    // seeds: env_split_seed is not one of them, as it decides what is learnt
    "seed", "alg_seed", "eval_seed",
    // where things are
    "run_name", "runs_dir", "traj_dir",
    // what is recorded, and when
    "summary_interval", "eval_interval", "ckpt_interval", "keep_checkpoints", "keep_best", "return_interval",
    "return_episodes", "return_repeats", "return_task_limit", "profile_steps", "profile_ranks",
    "history_compression",
    // how it is carried out; results differ by rounding at most
    "cpu_threads", "n_process", "num_workers", "batch_size_cache", "rendezvous_timeout_seconds",
    "collective_timeout_seconds", "silent_rank_seconds", "leave_within_seconds"};

const std::string& value_in(const std::vector<ConfigValue>& values, const std::string& key) {
  static const std::string none = "none";
  const auto found = std::ranges::find(values, key, &ConfigValue::key);
  return found == values.end() ? none : found->value;
}

/// Whether a key is a piece of the run's block that its transformer_block has by itself, so that the one
/// follows from the other.
bool follows_from_block(const std::vector<ConfigValue>& config, const std::string& key) {
  const std::string block = value_in(config, "transformer_block");
  const RunConfig usual = read_leniently(fmt::format("transformer_block: {}\n", block));
  std::string value = value_in(config, key);
  std::erase(value, '"');
  const bool left_open = value == "auto";  // by a network with a name
  return std::ranges::any_of(usual.model.block_pieces().chosen(), [&](const std::string& piece) {
    return left_open ? piece.starts_with(key + " = ") : piece == fmt::format("{} = {}", key, value);
  });
}

}  // namespace

bool only_repeats(const std::string& key) {
  return std::ranges::find(kRepeating, key) != kRepeating.end();
}

std::vector<RunGroup> group_runs(const std::vector<RecordedRun>& runs, const std::vector<std::string>& over) {
  const auto sets_apart = [&over](const ConfigChange& change) {
    return !only_repeats(change.key) && std::ranges::find(over, change.key) == over.end();
  };
  std::vector<RunGroup> groups;
  std::vector<std::string> keys;  // in which groups differ
  for (size_t i = 0; i < runs.size(); ++i) {
    bool joined = false;
    for (RunGroup& group : groups) {
      std::vector<ConfigChange> changes = differences(runs[group.members.front()].config, runs[i].config);
      std::erase_if(changes, [&](const ConfigChange& change) { return !sets_apart(change); });
      if (changes.empty()) {
        group.members.push_back(i);
        joined = true;
        break;
      }
      for (const ConfigChange& change : changes) {
        if (std::ranges::find(keys, change.key) == keys.end()) keys.push_back(change.key);
      }
    }
    if (!joined) groups.push_back({"", {i}});
  }
  std::erase_if(keys, [&](const std::string& key) {
    return std::ranges::all_of(groups, [&](const RunGroup& group) {
      return follows_from_block(runs[group.members.front()].config, key);
    });
  });
  for (RunGroup& group : groups) {
    std::vector<std::string> parts;
    for (const std::string& key : keys)
      parts.push_back(key + " " + value_in(runs[group.members.front()].config, key));
    group.label = join(parts, ", ");
  }
  return groups;
}

}  // namespace adtrain
