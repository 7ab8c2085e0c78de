#include "run/own/OwnTasksReport.h"

#include <algorithm>
#include <filesystem>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "base/Text.h"
#include "data/ColumnWindowIndex.h"
#include "run/inspect/LearningProgress.h"
#include "run/own/OwnHistories.h"

namespace adtrain {
namespace {

/// Returns are read of so few tasks, and of so few steps, that it takes seconds.
constexpr size_t kTasksRead = 4;
constexpr int64_t kStepsRead = 20'000'000;

/// A few of the tasks, evenly spread.
std::vector<size_t> a_few_of(const OwnHistories& histories) {
  const std::vector<size_t>& tasks = histories.trained();
  const size_t apart = (tasks.size() + kTasksRead - 1) / kTasksRead;
  std::vector<size_t> few;
  int64_t steps = 0;
  for (size_t i = 0; i < tasks.size(); i += apart) {
    for (const int64_t of_history : histories.source().tasks()[tasks[i]].steps) steps += of_history;
    if (steps <= kStepsRead) few.push_back(tasks[i]);
  }
  return few;
}

/// "observations: Box((4,), float32); actions: Discrete(2)", of several groups with its name before.
std::string line_of(const TaskSpaces& spaces) {
  return fmt::format(
      "{}observations: {}{}; actions: {}",
      spaces.group.empty() ? "" : fmt::format("group {}: ", spaces.group), spaces.observation.text(),
      spaces.packed_digits.empty() ? "" : fmt::format(", of {} each", fmt::join(spaces.packed_digits, " × ")),
      spaces.action.text());
}

std::vector<std::string> notices_of(const OwnHistories& histories) {
  std::vector<std::string> names;
  const std::vector<size_t> few = a_few_of(histories);
  for (const TaskProgress& task : learning_progress(histories.source(), few, [](int64_t) {})) {
    if (task.episodes > 0 && task.stands_still()) names.push_back(histories.source().tasks()[task.task].name);
  }
  if (names.empty()) return {};
  return {
      fmt::format("of {} task{} that were read, {} return no more in the last tenth of their histories than "
                  "in the first, so there is no learning to imitate: {}; adtrain inspect histories shows "
                  "more",
                  few.size(), few.size() == 1 ? "" : "s", names.size(), join(names, ", "))};
}

}  // namespace

std::optional<OwnTasksReport> OwnTasksReport::of(RunConfig& config) {
  if (!config.environment.has_own_tasks()) return std::nullopt;
  if (!config.data.histories && !std::filesystem::exists(config.history_file())) return std::nullopt;
  const std::shared_ptr<const OwnHistories> opened = open_own_histories(config);
  const OwnHistories& histories = *opened;
  const HistorySource& source = histories.source();
  std::vector<size_t> groups;
  for (const size_t task : histories.trained()) groups.push_back(histories.group_of(task));
  const ColumnWindowIndex windows(
      source, histories.trained(), histories.shape(config),
      compute_alone(static_cast<size_t>(std::max<int64_t>(1, config.data.num_workers))), groups);
  OwnTasksReport report;
  report.lines = {
      fmt::format("histories: {} ({}), {} tasks, {} steps in all", source.format_names(),
                  source.description(), grouped(static_cast<int64_t>(source.tasks().size())),
                  grouped(source.total_steps())),
      fmt::format("tasks: {} trained on, {} held out",
                  grouped(static_cast<int64_t>(histories.trained().size())),
                  grouped(static_cast<int64_t>(histories.held_out().size()))),
      fmt::format("windows: {} of {} histories", grouped(windows.windows()), grouped(windows.histories()))};
  if (config.data.sequence_packing) report.lines.push_back("sequence packing: " + windows.packing_text());
  std::vector<std::string> spaces_lines;
  for (const TaskSpaces& spaces : histories.spaces()) spaces_lines.push_back(line_of(spaces));
  report.lines.insert(report.lines.begin() + 1, spaces_lines.begin(), spaces_lines.end());
  report.notices = notices_of(histories);
  if (const std::string notice = histories.notice(); !notice.empty()) report.notices.push_back(notice);
  report.json = {{"format", source.format_names()},
                 {"trained", histories.trained().size()},
                 {"held_out", histories.held_out().size()},
                 {"windows", windows.windows()}};
  if (config.data.sequence_packing) {
    report.json["sequence_packing"] = {{"rows", windows.size()},
                                       {"packed_rows", windows.packed().size()},
                                       {"packed_histories", windows.packed().segments().size()},
                                       {"fill_rate", windows.fill_rate()}};
  }
  const TaskSpaces& first = histories.spaces().front();
  if (histories.spaces().size() == 1) {
    report.json["observation_space"] = first.observation.to_json();
    report.json["action_space"] = first.action.to_json();
    report.json["packed_digits"] = first.packed_digits;
  } else {
    report.json["groups"] = nlohmann::json::parse(json_of_groups(histories.spaces()));
  }
  return report;
}

}  // namespace adtrain
