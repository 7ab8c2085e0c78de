#include "run/inspect/InspectedHistories.h"

#include <algorithm>
#include <regex>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "base/Text.h"
#include "data/formats/Episodes.h"

namespace adtrain {
namespace {

using nlohmann::ordered_json;
namespace fs = std::filesystem;

std::vector<size_t> evenly_spread(size_t total, int64_t wanted) {
  const size_t count = wanted == 0 ? total : std::min(total, static_cast<size_t>(wanted));
  std::vector<size_t> chosen;
  for (size_t i = 0; i < count; ++i) chosen.push_back(i * total / count);
  return chosen;
}

double first_tenth(const TaskProgress& task) {
  return task.first_tenth;
}
double last_tenth(const TaskProgress& task) {
  return task.last_tenth;
}

int64_t sum_of(const std::vector<TaskProgress>& tasks, int64_t TaskProgress::*number) {
  int64_t sum = 0;
  for (const TaskProgress& task : tasks) sum += task.*number;
  return sum;
}

/// JSON has no infinite bounds: they are the texts "Infinity" and "-Infinity".
ordered_json json_of(const std::optional<Space>& space) {
  if (!space) return {};
  static const std::regex kInfinity("-?Infinity");
  return ordered_json::parse(std::regex_replace(space->to_json(), kInfinity, "\"$&\""));
}

ordered_json json_of(const SpaceGroup& group) {
  ordered_json columns = ordered_json::array();
  for (const ColumnType& column : group.columns)
    columns.push_back({{"name", name_of(column.kind)}, {"type", name_of(column.type)}, {"row", column.row}});
  return {{"name", group.name},
          {"observation_space", json_of(group.observation)},
          {"action_space", json_of(group.action)},
          {"packed_digits", group.packed_digits},
          {"columns", columns}};
}

/// The first few, and how many more there are.
std::string a_few_of(const std::vector<std::string>& names) {
  constexpr size_t kShown = 5;
  const auto shown = static_cast<std::ptrdiff_t>(std::min(kShown, names.size()));
  return fmt::format("{}{}", fmt::join(names.begin(), names.begin() + shown, "; "),
                     names.size() > kShown ? fmt::format("; and {} more", names.size() - kShown) : "");
}

std::string text_of(const ColumnType& column) {
  return fmt::format("{} {}{}", name_of(column.kind), name_of(column.type),
                     column.row.empty() ? "" : fmt::format(" ({})", fmt::join(column.row, ", ")));
}

std::string text_of(const SpaceGroup& group) {
  std::vector<std::string> columns;
  for (const ColumnType& column : group.columns) columns.push_back(text_of(column));
  const auto space = [](const std::optional<Space>& found) {
    return found ? found->text() : "not described";
  };
  return fmt::format(
      "  {}observations: {}{}; actions: {}\n    columns: {}\n", group.name.empty() ? "" : group.name + ": ",
      space(group.observation),
      group.packed_digits.empty() ? "" : fmt::format(", of {} each", fmt::join(group.packed_digits, " × ")),
      space(group.action), join(columns, ", "));
}

std::string lengths_of(const HistorySource& source) {
  int64_t least = source.tasks().front().steps.front(), most = least;
  for (const TaskHistories& task : source.tasks()) {
    least = std::min(least, std::ranges::min(task.steps));
    most = std::max(most, std::ranges::max(task.steps));
  }
  return least == most ? grouped(least) : fmt::format("{} to {}", grouped(least), grouped(most));
}

std::string returns_of(const std::vector<TaskProgress>& tasks) {
  const int64_t episodes = sum_of(tasks, &TaskProgress::episodes);
  if (episodes == 0) return "  no whole episode\n";
  const MeanOverTasks first = MeanOverTasks::of(tasks, first_tenth),
                      last = MeanOverTasks::of(tasks, last_tenth);
  const auto words_for = [](const MeanOverTasks& value) {
    return value.tasks == 0 ? "of no episode"
                            : fmt::format("{:.4g} (± {:.2g} over tasks)", value.mean, value.deviation);
  };
  return fmt::format(
      "  {} episodes of {:.1f} steps on average\n"
      "  mean return: {} in the first tenth of learning, {} in the last\n",
      grouped(episodes),
      static_cast<double>(sum_of(tasks, &TaskProgress::episode_steps)) / static_cast<double>(episodes),
      words_for(first), words_for(last));
}

}  // namespace

InspectedHistories InspectedHistories::of(const fs::path& path, const HistorySourceOptions& options,
                                          int64_t count, Console& console) {
  InspectedHistories found{path, HistorySource::open(path, options), {}};
  const std::vector<size_t> chosen = evenly_spread(found.source->tasks().size(), count);
  int64_t total = 0;
  for (const size_t task : chosen) {
    for (const int64_t steps : found.source->tasks()[task].steps) total += steps;
  }
  Progress progress(console, "reading " + path.filename().string(), total, "steps");
  found.tasks = learning_progress(*found.source, chosen, [&](int64_t steps) { progress.update(steps, ""); });
  return found;
}

std::vector<std::string> InspectedHistories::standing_still() const {
  std::vector<std::string> names;
  for (const TaskProgress& task : tasks) {
    if (task.stands_still()) names.push_back(source->tasks()[task.task].name);
  }
  return names;
}

std::vector<std::string> InspectedHistories::not_finite() const {
  std::vector<std::string> places;
  for (const TaskProgress& task : tasks)
    places.insert(places.end(), task.not_finite.begin(), task.not_finite.end());
  return places;
}

ordered_json InspectedHistories::json() const {
  ordered_json document = {{"path", path.string()},
                           {"format", name_of(source->format())},
                           {"description", source->description()},
                           {"tasks", source->tasks().size()},
                           {"histories", source->total_histories()},
                           {"steps", source->total_steps()},
                           {"groups", ordered_json::array()}};
  for (const SpaceGroup& group : source->groups()) document["groups"].push_back(json_of(group));
  document["read"] = {{"tasks", tasks.size()},
                      {"steps", sum_of(tasks, &TaskProgress::steps)},
                      {"episodes", sum_of(tasks, &TaskProgress::episodes)},
                      {"return_of_first_tenth", MeanOverTasks::of(tasks, first_tenth).mean},
                      {"return_of_last_tenth", MeanOverTasks::of(tasks, last_tenth).mean},
                      {"not_improving", standing_still()},
                      {"not_finite", not_finite()}};
  document["read"]["each_task"] = ordered_json::array();
  for (const TaskProgress& task : tasks) {
    const TaskHistories& histories = source->tasks()[task.task];
    document["read"]["each_task"].push_back({{"name", histories.name},
                                             {"number", histories.number},
                                             {"histories", histories.steps.size()},
                                             {"steps", task.steps},
                                             {"episodes", task.episodes},
                                             {"return_of_first_tenth", task.first_tenth},
                                             {"return_of_last_tenth", task.last_tenth},
                                             {"curve", task.curve}});
  }
  return document;
}

std::string InspectedHistories::text() const {
  std::string text =
      fmt::format("{}: {} ({})\n", path.string(), name_of(source->format()), source->description());
  for (const SpaceGroup& group : source->groups()) text += text_of(group);
  text += fmt::format("  {}, {} of {} steps, {} steps in all\n",
                      counted(static_cast<int64_t>(source->tasks().size()), "task", "tasks"),
                      counted(source->total_histories(), "history", "histories"), lengths_of(*source),
                      grouped(source->total_steps()));
  if (tasks.size() < source->tasks().size()) {
    text += fmt::format("  of {} of these tasks, evenly spread (--tasks 0 reads all):\n",
                        grouped(static_cast<int64_t>(tasks.size())));
  }
  text += returns_of(tasks);
  const std::vector<std::string> still = standing_still(), places = not_finite();
  if (!still.empty())
    text += fmt::format("notice: {} not improve: {}\n",
                        still.size() == 1 ? "1 task does" : fmt::format("{} tasks do", still.size()),
                        a_few_of(still));
  if (!places.empty()) text += fmt::format("notice: NaN or infinite values: {}\n", a_few_of(places));
  std::vector<std::string> unrecorded;
  for (const TaskHistories& task : source->unrecorded()) unrecorded.push_back(task.name);
  if (!unrecorded.empty())
    text += fmt::format("notice: held-out tasks without histories: {}\n", a_few_of(unrecorded));
  const bool silent = std::ranges::any_of(
      source->groups(), [](const SpaceGroup& group) { return !EpisodeFinder::can_tell(group.columns); });
  if (silent) text += "notice: the data do not say where episodes end\n";
  return text;
}

}  // namespace adtrain
