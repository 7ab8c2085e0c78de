#include "run/ConfigChanges.h"

#include <algorithm>
#include <map>

#include <fmt/format.h>

#include "base/Error.h"
#include "base/Text.h"
#include "config/YamlFile.h"
#include "run/BatchSizesOfRun.h"

namespace adtrain {
namespace {

constexpr const char* kGlobalBatch = "global_batch_size";

int64_t global_batch(const TrainingOptions& options, int64_t ranks) {
  return options.global_batch_size.value_or(options.train_batch_size * ranks *
                                            options.gradient_accumulation_steps);
}

/// Returns the entries that no key took: unknown, or with a value that is no longer allowed.
std::vector<Entry> assign_leniently(std::vector<Section>& sections, const std::string& yaml) {
  std::map<std::string, Key*> keys;
  for (Section& section : sections) {
    for (Key& key : section.keys()) keys.emplace(key.name(), &key);
  }
  std::vector<Entry> left;
  for (const Entry& entry : YamlFile::parse(yaml, "the run's configuration").entries) {
    const auto known = keys.find(entry.key);
    const bool taken =
        known != keys.end() && !known->second->assign(entry.text, entry.kind == Entry::Kind::kNull);
    if (!taken) left.push_back(entry);
  }
  return left;
}

const ConfigValue* find_key(const std::vector<ConfigValue>& values, const std::string& key) {
  const auto found = std::ranges::find(values, key, &ConfigValue::key);
  return found == values.end() ? nullptr : &*found;
}

}  // namespace

RunConfig read_leniently(const std::string& yaml) {
  RunConfig config;
  std::vector<Section> sections = config.sections();
  assign_leniently(sections, yaml);
  return config;
}

std::vector<ConfigValue> values_of(const std::string& yaml) {
  RunConfig config;
  std::vector<Section> sections = config.sections();
  const std::vector<Entry> left = assign_leniently(sections, yaml);
  // Earlier versions did not save it, or saved what it then was.
  if (config.model.first_step == FirstStep::kAuto) config.model.first_step = FirstStep::kZeros;
  std::vector<ConfigValue> values;
  for (const Section& section : sections) {
    for (const Key& key : section.keys()) values.push_back({key.name(), key.value_text()});
  }
  for (const Entry& entry : left) {
    const auto known = std::ranges::find(values, entry.key, &ConfigValue::key);
    if (known == values.end()) {
      values.push_back({entry.key, entry.text});
    } else {
      known->value = entry.text;
    }
  }
  return values;
}

std::vector<ConfigChange> differences(const std::vector<ConfigValue>& before,
                                      const std::vector<ConfigValue>& now) {
  constexpr const char* kNone = "none";
  std::vector<ConfigChange> changes;
  for (const ConfigValue& value : before) {
    const ConfigValue* const other = find_key(now, value.key);
    const std::string after = other == nullptr ? kNone : other->value;
    if (value.value != after) changes.push_back({value.key, value.value, after});
  }
  for (const ConfigValue& value : now) {
    if (find_key(before, value.key) == nullptr) changes.push_back({value.key, kNone, value.value});
  }
  return changes;
}

std::string ConfigChange::text() const {
  return fmt::format("{} {} → {}", key, before, now);
}

std::vector<ConfigChange> changes_between(const std::string& earlier_yaml, int64_t earlier_ranks,
                                          const RunConfig& config, int64_t ranks) {
  RunConfig earlier = read_leniently(earlier_yaml), now = config;
  // Earlier versions did not save every key that a network has.
  for (RunConfig* either : {&earlier, &now}) either->model.decide();
  BatchSizesOfRun::kept(now.training, {earlier.training, earlier_ranks, /*found=*/true}, ranks)
      .put_into(now.training);
  const int64_t batch_before = global_batch(earlier.training, earlier_ranks);
  const int64_t batch_now = global_batch(now.training, ranks);
  std::vector<Section> before_sections = earlier.sections(), now_sections = now.sections();
  std::vector<ConfigChange> changes;
  for (size_t i = 0; i < now_sections.size(); ++i) {
    for (size_t k = 0; k < now_sections[i].keys().size(); ++k) {
      const Key& key = now_sections[i].keys()[k];
      const std::string before = before_sections[i].keys()[k].value_text(), after = key.value_text();
      if (key.name() == kGlobalBatch && batch_before != batch_now) {
        changes.push_back({kGlobalBatch, fmt::format("of {} sequences", batch_before),
                           fmt::format("{} sequences", batch_now), /*free=*/false});
      } else if (before != after) {
        changes.push_back({key.name(), before, after, key.is_free_on_resume()});
      }
    }
  }
  return changes;
}

void refuse_other_meaning(const std::vector<ConfigChange>& changes, const std::vector<std::string>& allowed,
                          const std::string& run) {
  std::vector<std::string> lines, keys;
  for (const ConfigChange& change : changes) {
    if (change.free || std::ranges::find(allowed, change.key) != allowed.end()) continue;
    lines.push_back(fmt::format("  {}: {} in the run, {} now", change.key, change.before, change.now));
    keys.push_back(change.key);
  }
  if (keys.empty()) return;
  throw ConfigError(fmt::format(
      "{} cannot be continued with this configuration, which means something else:\n{}\nSet {} back, start "
      "another run by --set run_name=…, or continue this one all the same with --allow-changes {}",
      run, join(lines, "\n"), keys.size() == 1 ? "it" : "them", join(keys, ",")));
}

void check_key_names(const std::vector<std::string>& keys, const std::string& option) {
  RunConfig defaults;
  std::vector<std::string> names;
  for (const Section& section : defaults.sections()) {
    for (const Key& key : section.keys()) names.push_back(key.name());
  }
  for (const std::string& key : keys) {
    if (std::ranges::find(names, key) != names.end()) continue;
    const std::string nearest = nearest_name(key, names);
    throw ConfigError(fmt::format("{}: found '{}'; expected keys of the configuration, by commas{}", option,
                                  key, nearest.empty() ? "" : fmt::format("; did you mean {}?", nearest)));
  }
}

}  // namespace adtrain
