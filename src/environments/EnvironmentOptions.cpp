#include "environments/EnvironmentOptions.h"

#include <algorithm>
#include <array>
#include <sstream>
#include <vector>

#include <fmt/format.h>

#include "base/Error.h"
#include "base/Text.h"
#include "environments/PluginFamilies.h"
#include "environments/Space.h"

namespace adtrain {
namespace {

struct Published {
  Family family;
  std::string name;
  std::vector<std::string> aliases;
  int64_t horizon;
  int64_t split_seed;
  double train_ratio;
};

const std::array<Published, 3>& published_families() {
  static const std::array<Published, 3> families = {{
      {Family::kDarkroom, "darkroom", {}, 20, 0, 0.9},
      {Family::kDarkroomPermuted, "darkroompermuted", {"darkroom_permuted"}, 50, 4, 0.9},
      {Family::kDarkKeyToDoor, "darkkeytodoor", {"darkroomkeytodoor", "dark_key_to_door"}, 50, 4, 0.95},
  }};
  return families;
}

Published published(const std::string& env) {
  const std::string name = to_lower(env);
  for (const Published& family : published_families()) {
    if (name == family.name) return family;
    for (const std::string& alias : family.aliases) {
      if (name == alias) return family;
    }
  }
  if (const PluginFamily* plugin = PluginFamilies::find(name)) {
    const EnvironmentDefaults& defaults = plugin->defaults;
    return {Family::kPlugin, name, {}, defaults.horizon, defaults.env_split_seed, defaults.train_env_ratio};
  }
  return {Family::kOwn, env, {}, /*horizon=*/0, /*split_seed=*/0, /*train_ratio=*/0.9};
}

/// Key-to-door has grid_size⁴ tasks, which the split lists one by one.
constexpr int64_t kLargestKeyToDoorGrid = 64;

}  // namespace

std::vector<std::string> environment_names() {
  std::vector<std::string> names;
  for (const Published& family : published_families()) {
    names.push_back(family.name);
    names.insert(names.end(), family.aliases.begin(), family.aliases.end());
  }
  const std::vector<std::string> plugins = PluginFamilies::names();
  names.insert(names.end(), plugins.begin(), plugins.end());
  return names;
}

void EnvironmentOptions::declare(Section& section) {
  section.key(
      "env", env,
      "Family of tasks: darkroom, darkroompermuted, darkkeytodoor or a plug-in's. Any other name is a label "
      "for tasks of your own, which are in `histories` or in the environments of env_worker.");
  section.key("grid_size", grid_size, "Side of the square room.").unit("cells").at_least(2).at_most(255);
  section.key("num_actions", num_actions, "Four moves and staying; only 5 is possible.").unit("actions");
  section.key("horizon", horizon, "Length of every episode; null: as published for the family (20, 50, 50).")
      .unit("steps")
      .at_least(1)
      .at_most(1e6);
  section.key("env_split_seed", env_split_seed,
              "Seed of the shuffle that splits tasks into training and held-out ones, exactly as Python's "
              "random would; null: as published for the family (0, 4, 4).");
  section
      .key("train_env_ratio", train_env_ratio,
           "Share of the tasks that is trained on; null: as published for the family (0.9, 0.9, 0.95).")
      .above(0)
      .at_most(1);
  section.key(
      "observation_space", observation_space,
      "Tasks of your own: what is observed, as Minari writes Gymnasium's spaces, for example {type: Box, "
      "dtype: float32, shape: [4], low: -1, high: 1}; null: as the histories or the environments say.");
  section.key("action_space", action_space, "Tasks of your own: what is done, in the same way.");
  section.key(
      "observation_packing", observation_packing,
      "Tasks of your own, where each number of an observation holds several digits: how many values each "
      "may take, the most significant first, for example [13, 12].");
  section.key("space_groups", space_groups,
              "Tasks of your own in several groups of equal spaces: these, as a run saves them; null: as the "
              "histories say.");
  section.ignore("dim_states", "an observation is always the two coordinates");
  section.ignore("dim_actions", "follows from num_actions");
  section.ignore("max_reward", "follows from the family, the goal and the horizon");
}

void EnvironmentOptions::check(Findings& findings) const {
  check_own_tasks(findings);
  if (num_actions != 5) {
    findings.add("num_actions",
                 fmt::format("found {}; expected 5, four moves and staying; set it to 5 or leave it out",
                             num_actions));
  }
  if (family() == Family::kDarkKeyToDoor && grid_size > kLargestKeyToDoorGrid) {
    findings.add("grid_size",
                 fmt::format("found {}, which makes {}⁴ tasks of key-to-door; expected at most {}", grid_size,
                             grid_size, kLargestKeyToDoorGrid));
  }
}

void EnvironmentOptions::check_own_tasks(Findings& findings) const {
  if (!has_own_tasks()) {
    for (const auto& [key, is_there] : {std::pair{"observation_space", observation_space.has_value()},
                                        std::pair{"action_space", action_space.has_value()},
                                        std::pair{"observation_packing", observation_packing.has_value()},
                                        std::pair{"space_groups", space_groups.has_value()}}) {
      if (is_there) {
        findings.add(key, fmt::format("found it with env {}, whose spaces are its own; expected it for tasks "
                                      "of your own alone: leave it out, or give env a name of yours",
                                      env));
      }
    }
    return;
  }
  const auto fits_no_name = [](unsigned char letter) {
    return letter == '/' || letter < ' ' || letter == 127;
  };
  if (space_groups) check_space_groups(findings);
  constexpr size_t kLongestLabel = 100;
  if (env.empty() || env.size() > kLongestLabel || std::ranges::any_of(env, fits_no_name)) {
    findings.add("env", fmt::format("found '{}'; expected a label that can be part of a file's name: 1 to {} "
                                    "bytes without slashes and control characters",
                                    abridged(env), kLongestLabel));
  }
  if (horizon) {
    findings.add("horizon", fmt::format("found {} for tasks of your own, whose episodes end when their "
                                        "environments say so; expected null; max_episode_steps cuts them off",
                                        *horizon));
  }
  if (grid_size != EnvironmentOptions().grid_size) {
    findings.add(
        "grid_size",
        fmt::format("found {} for tasks of your own, which lie on no grid; leave it out", grid_size));
  }
}

void EnvironmentOptions::check_space_groups(Findings& findings) const {
  try {
    groups_from_json(*space_groups, "it");
  } catch (const DataError& error) {
    findings.add("space_groups", error.what());
  }
  if (observation_space || action_space || observation_packing) {
    findings.add("space_groups",
                 "found it beside observation_space, action_space or observation_packing, which are those of "
                 "one group; expected either");
  }
}

Family EnvironmentOptions::family() const {
  return published(env).family;
}
std::vector<TaskSpaces> EnvironmentOptions::spaces() const {
  if (has_own_tasks() && space_groups) return groups_from_json(*space_groups, "space_groups");
  if (!has_own_tasks() || !observation_space || !action_space) return {};
  TaskSpaces spaces{Space::from_json(*observation_space, "observation_space"),
                    Space::from_json(*action_space, "action_space"),
                    /*packed_digits=*/{}};
  if (observation_packing) {
    std::istringstream digits(*observation_packing);
    for (std::string digit; std::getline(digits, digit, ',');)
      spaces.packed_digits.push_back(std::stoll(digit));
  }
  return {spaces};
}
std::string EnvironmentOptions::family_name() const {
  return published(env).name;
}
int64_t EnvironmentOptions::episode_horizon() const {
  if (has_own_tasks() && !horizon) {
    throw ConfigError(fmt::format(
        "env: no task family is called '{}', and episodes of own tasks have no common length", env));
  }
  return horizon.value_or(published(env).horizon);
}
int64_t EnvironmentOptions::split_seed() const {
  return env_split_seed.value_or(published(env).split_seed);
}
double EnvironmentOptions::train_ratio() const {
  return train_env_ratio.value_or(published(env).train_ratio);
}

}  // namespace adtrain
