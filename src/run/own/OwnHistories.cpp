#include "run/own/OwnHistories.h"

#include <algorithm>
#include <functional>
#include <set>
#include <utility>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "base/Error.h"
#include "base/NumberRanges.h"
#include "base/Text.h"
#include "environments/TaskSplit.h"
#include "model/spaces/SpaceFit.h"

namespace adtrain {
namespace {

/// What the data say, which the configuration may say again, or more precisely.
Space agreed(const std::optional<Space>& in_data, const std::optional<std::string>& in_config,
             const char* key, const std::string& path) {
  if (!in_config) {
    if (in_data) return *in_data;
    throw ConfigError(
        fmt::format("{}: found null, and {} does not say what it is; expected a space, for "
                    "example {{type: Discrete, n: 6}}",
                    key, path));
  }
  Space said = Space::from_json(*in_config, key);
  if (may_be_said(in_data, said)) return said;
  throw ConfigError(fmt::format("{}: found {}, and {} has {} ({}); expected the same, or null", key,
                                *in_config, path, in_data->text(), abridged(in_data->to_json(), 200)));
}

}  // namespace

OwnHistories::OwnHistories(const RunConfig& config) : named_(config) {
  const GroupsOfTasks groups(source());
  choose_tasks(config);
  choose_groups(config, groups);
  resolve_spaces(config, groups);
  find_unrecorded(groups);
  expect_network(config);
}

void OwnHistories::choose_tasks(const RunConfig& config) {
  std::map<int64_t, size_t> places;  // of the tasks that the file has, by number
  for (size_t task = 0; task < source().tasks().size(); ++task) places[number_of(task)] = task;
  std::vector<int64_t> numbers;
  for (const auto& [number, place] : places) numbers.push_back(number);
  const NumberRanges there = NumberRanges::of(numbers);
  expect_small_number(there.largest(), source().tasks()[places.at(there.largest())].name);
  const int64_t count = there.largest() + 1;
  for (const auto& [key, named] :
       {std::pair{"tasks", config.tasks.tasks}, std::pair{"train_tasks", config.tasks.train_tasks}}) {
    if (!named) continue;
    const NumberRanges absent = NumberRanges::parse(*named).value().without(there);
    if (absent.empty()) continue;
    throw ConfigError(fmt::format("{}: found {}, and {} has the tasks {}; expected some of those", key,
                                  abridged(absent.text()), name(), abridged(there.text())));
  }
  const auto places_of = [&](const std::vector<int64_t>& side) {
    std::vector<size_t> chosen;
    for (const int64_t number : side) {
      const auto found = places.find(number);
      if (found != places.end()) chosen.push_back(found->second);
    }
    return chosen;
  };
  const TaskSplit split = TaskSplit::of(config.environment, count, config.tasks);
  trained_ = places_of(split.train);
  held_out_ = places_of(split.test);
  if (!config.tasks.train_tasks) split_as_the_data_say();
}

/// Throws where the largest number is so large that a list of all numbers up to it would be too long.
void OwnHistories::expect_small_number(int64_t largest, const std::string& task) const {
  if (largest <= kLargestNumber) return;
  throw DataError(
      fmt::format("{}: group {} ({}) has the largest number; expected numbers up to {}, as all numbers up to "
                  "the largest are shuffled to split the tasks: give the group another name, such as 0, and "
                  "the task its own by the attribute task",
                  name(), largest, abridged(task), kLargestNumber));
}

/// Tasks of which the data say their side go there; the others stay.
void OwnHistories::split_as_the_data_say() {
  const auto side_of = [&](size_t task) { return source().tasks()[task].trained; };
  std::vector<size_t> both = trained_;
  both.insert(both.end(), held_out_.begin(), held_out_.end());
  std::erase_if(trained_, [&](size_t task) { return side_of(task).has_value(); });
  std::erase_if(held_out_, [&](size_t task) { return side_of(task).has_value(); });
  for (const size_t task : both) {
    if (const std::optional<bool> trained = side_of(task)) (*trained ? trained_ : held_out_).push_back(task);
  }
}

void OwnHistories::find_unrecorded(const GroupsOfTasks& groups) {
  for (TaskHistories& task : source().unrecorded()) {
    std::set<std::string> fitting;  // a domain may have several groups
    for (const size_t trained : trained_) {
      if (groups.all()[groups.of(trained)].domain == task.attributes["domain"])
        fitting.insert(spaces_[group_of_.at(trained)].group);
    }
    if (fitting.size() == 1) unrecorded_.push_back({std::move(task), *fitting.begin()});
  }
}

std::string OwnHistories::notice() const {
  if (const std::string names = names_on_both_sides(); !names.empty()) {
    return fmt::format(
        "tasks that are trained on and tasks that are held out have the same names, by which scoring and "
        "evaluations know them, so that these will be refused: {}",
        names);
  }
  if (unrecorded_.empty()) return "";
  std::vector<std::string> names;
  for (const UnrecordedTask& unrecorded : unrecorded_) names.push_back(unrecorded.task.name);
  return fmt::format("{} held-out task{} no histories here, so that no loss is measured on {}: {}",
                     names.size(), names.size() == 1 ? " has" : "s have", names.size() == 1 ? "it" : "them",
                     abridged(join(names, ", ")));
}

std::string OwnHistories::names_on_both_sides() const {
  const auto name_of = [this](size_t task) {
    return std::pair(source().tasks()[task].group, source().tasks()[task].name);
  };
  std::set<std::pair<size_t, std::string>> trained;
  for (const size_t task : trained_) trained.insert(name_of(task));
  std::set<std::string> both;
  for (const size_t task : held_out_)
    if (trained.contains(name_of(task))) both.insert(name_of(task).second);
  return abridged(join({both.begin(), both.end()}, ", "));
}

void OwnHistories::choose_groups(const RunConfig& config, const GroupsOfTasks& groups) {
  const auto in_group = [&](size_t task) {
    return groups.is_chosen(groups.of(task), config.data.history_group);
  };
  std::erase_if(trained_, std::not_fn(in_group));
  std::erase_if(held_out_, std::not_fn(in_group));
  if (trained_.empty() && held_out_.empty()) {
    throw ConfigError(fmt::format(
        "{}: found no task that is chosen; expected history_group to name some of its groups of equal "
        "spaces, and tasks some of their tasks. There are:\n  {}",
        name(), join(groups.texts([&](size_t task) { return number_of(task); }), "\n  ")));
  }
  if (trained_.empty()) {
    throw ConfigError(fmt::format(
        "{} has no task to train on: of {} tasks that are chosen the split holds {} out; expected one at "
        "least: raise train_env_ratio ({}), name more tasks, or name train_tasks",
        name(), held_out_.size(), held_out_.size(), config.environment.train_ratio()));
  }
  // No encoder learns to read the others.
  const auto is_untrained = [&](size_t task) {
    return std::ranges::none_of(trained_,
                                [&](size_t trained) { return groups.of(trained) == groups.of(task); });
  };
  std::erase_if(held_out_, is_untrained);
}

void OwnHistories::resolve_spaces(const RunConfig& config, const GroupsOfTasks& groups) {
  std::map<size_t, size_t> places;  // of groups that are trained on, in order of their first tasks
  for (const size_t task : std::set<size_t>(trained_.begin(), trained_.end())) {
    if (places.try_emplace(groups.of(task), places.size()).second)
      spaces_.push_back(resolved(config, groups.all()[groups.of(task)]));
  }
  for (const auto* tasks : {&trained_, &held_out_}) {
    for (const size_t task : *tasks) group_of_[task] = places.at(groups.of(task));
  }
  if (spaces_.size() == 1) spaces_.front().group = "";
  expect_saved_groups(config);
  const EnvironmentOptions& said = config.environment;
  if (spaces_.size() > 1 && (said.observation_space || said.action_space || said.observation_packing)) {
    throw ConfigError(fmt::format(
        "observation_space, action_space or observation_packing: found with {} groups of equal spaces "
        "in {}; expected null, as these are of one group, or history_group to name that one",
        spaces_.size(), name()));
  }
  if (spaces_.size() > 1 && config.training.cuda_graph == CudaGraphUse::kOn) {
    throw ConfigError(fmt::format(
        "cuda_graph: found on with {} groups of equal spaces in {}, how many rows of which are in a "
        "step differs from step to step; expected auto or off",
        spaces_.size(), name()));
  }
  const auto is_box = [](const TaskSpaces& spaces) { return spaces.observation.kind == Space::Kind::kBox; };
  if (config.data.normalize_observations && std::ranges::none_of(spaces_, is_box)) {
    throw ConfigError(
        fmt::format("normalize_observations: found true, and observations are {}; expected false "
                    "for other spaces than a Box",
                    spaces_.front().observation.text()));
  }
}

TaskSpaces OwnHistories::resolved(const RunConfig& config, const GroupOfTasks& group) const {
  const std::string path = name();
  TaskSpaces spaces;
  spaces.group = group.name;
  spaces.observation =
      agreed(group.observation, config.environment.observation_space, "observation_space", path);
  spaces.action = agreed(group.action, config.environment.action_space, "action_space", path);
  spaces.packed_digits = group.packed_digits;
  const std::optional<std::string>& packing = config.environment.observation_packing;
  const std::string in_data = fmt::format("{}", fmt::join(group.packed_digits, ","));
  if (packing && !in_data.empty() && *packing != in_data) {
    throw ConfigError(
        fmt::format("observation_packing: found [{}], and {} has [{}]; expected the same, or null", *packing,
                    path, in_data));
  }
  if (packing) {
    EnvironmentOptions both = config.environment;
    both.observation_space = spaces.observation.to_json();
    both.action_space = spaces.action.to_json();
    spaces.packed_digits = both.spaces().front().packed_digits;
  }
  return spaces;
}

/// Throws where the configuration names other groups than the histories have.
void OwnHistories::expect_saved_groups(const RunConfig& config) const {
  if (!config.environment.space_groups) return;
  const std::vector<TaskSpaces> said = config.environment.spaces();
  if (said == spaces_) return;
  const auto texts = [](const std::vector<TaskSpaces>& groups, const std::vector<TaskSpaces>& others) {
    std::vector<std::string> lines;
    for (const TaskSpaces& spaces : groups) {
      if (std::ranges::find(others, spaces) == others.end())
        lines.push_back(fmt::format("{}: {}", spaces.group, spaces.text()));
    }
    return lines.empty() ? std::string("none") : join(lines, "; ");
  };
  throw ConfigError(fmt::format(
      "space_groups: found groups that {} does not have ({}), or not in this order, and it has others ({}); "
      "expected the groups that the run was trained on, or null",
      name(), texts(said, spaces_), texts(spaces_, said)));
}

void OwnHistories::expect_network(const RunConfig& config) const {
  Findings findings;
  check_spaces(config.model, spaces_, findings);
  std::vector<std::string> lines;
  for (const auto& [key, message] : findings.all()) lines.push_back(fmt::format("{}: {}", key, message));
  if (lines.empty()) return;
  throw ConfigError(fmt::format("{}: no network for its spaces:\n  {}", name(), join(lines, "\n  ")));
}

ColumnWindowShape OwnHistories::shape(const RunConfig& config) const {
  const DataOptions& data = config.data;
  return {.length = config.model.n_transit,
          .stride = data.window_stride,
          .margin = data.window_margin,
          .last_fraction = data.last_fraction,
          .steps = data.train_source_timesteps,
          .streams = data.train_n_stream,
          .episode_stride = data.episode_stride,
          .weights = data.task_weights,
          .packed = data.sequence_packing,
          .packing_seed = static_cast<uint64_t>(config.training.seed)};
}

std::shared_ptr<const OwnHistories> open_own_histories(RunConfig& config) {
  if (!config.environment.has_own_tasks()) return nullptr;
  auto histories = std::make_shared<const OwnHistories>(config);
  const std::vector<TaskSpaces>& groups = histories->spaces();
  if (groups.size() > 1) {
    config.environment.space_groups = json_of_groups(groups);
    return histories;
  }
  const TaskSpaces& spaces = groups.front();
  config.environment.observation_space = spaces.observation.to_json();
  config.environment.action_space = spaces.action.to_json();
  if (!spaces.packed_digits.empty())
    config.environment.observation_packing = fmt::format("{}", fmt::join(spaces.packed_digits, ","));
  return histories;
}

}  // namespace adtrain
