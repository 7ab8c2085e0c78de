#include "run/ScoredHistories.h"

#include <algorithm>
#include <filesystem>
#include <utility>

#include <fmt/format.h>

#include "base/Error.h"
#include "base/NearestPath.h"
#include "base/NumberRanges.h"
#include "base/Text.h"
#include "collection/CollectionSettings.h"
#include "collectives/Agreement.h"
#include "collectives/NodeMemory.h"
#include "data/HistoryFile.h"
#include "data/HistorySetReader.h"
#include "environments/TaskFamily.h"
#include "environments/TaskSplit.h"
#include "evaluation/EvaluationOptions.h"
#include "evaluation/scoring/GridScoredWindows.h"
#include "run/Histories.h"
#include "run/own/ScoredOwnTasks.h"

namespace adtrain {
namespace {

namespace fs = std::filesystem;

/// Throws where the file says that its tasks are others than the run's.
void expect_tasks_of_run(const fs::path& path, const HistorySettings& found, const RunConfig& config) {
  const HistorySettings expected = collection_settings(config.environment, config.collection);
  for (const char* const name : {"env", "grid_size", "horizon"}) {
    const auto held = found.find(name);
    if (held == found.end() || held->second == expected.at(name)) continue;
    throw DataError(
        fmt::format("{} holds tasks of {} {}, and the run was trained on tasks of {} {}; expected "
                    "histories of the family that it was trained on",
                    path.string(), name, abridged(held->second), name, expected.at(name)));
  }
}

fs::path family_file(const RunConfig& config) {
  return config.data.histories ? fs::path(*config.data.histories) : config.history_file();
}

std::unique_ptr<ScoredWindows> family_windows(const RunConfig& config, const Ranks& ranks, Console& console) {
  const fs::path path = family_file(config);
  const TaskFamily family = TaskFamily::of(config.environment);
  HistorySelection selection{.tasks = {}, .steps = 0, .streams = 0, .family = family, .settings = {}};
  std::vector<ScoredWindows::Task> tasks;
  {
    const HistoryFile file(path);
    expect_tasks_of_run(path, file.settings(), config);
    const TaskSplit split = TaskSplit::of(config.environment, family.task_count(), config.tasks);
    const NumberRanges trained = NumberRanges::of(split.train);
    for (const int64_t task : file.tasks().numbers())
      tasks.push_back({task, fmt::format("task {}", task), trained.contains(task)});
    tasks = scored_tasks(config, std::move(tasks), path.string());
    selection.steps = std::min(file.steps(), config.data.train_source_timesteps);
    selection.streams = std::min(file.streams(), config.data.train_n_stream);
  }
  for (const ScoredWindows::Task& task : tasks) selection.tasks.push_back(task.number);
  WindowShape shape = config.window_shape(LossPositions::kLast);
  shape.steps = selection.steps;
  const int64_t streams = selection.streams;
  NodeMemory node(*ranks.communicator, content_of(path));
  return std::make_unique<GridScoredWindows>(
      read_together(HistorySetReader(path, std::move(selection)), node, ranks, console), std::move(tasks),
      streams, shape, config.scoring.score_stride);
}

}  // namespace

void use_histories(RunConfig& config, const std::vector<std::string>& paths) {
  if (!config.environment.has_own_tasks()) {
    if (paths.size() > 1) {
      throw ConfigError(
          fmt::format("found {} files of histories; expected one, as the run's tasks are those "
                      "of the family {}: score them one after another",
                      paths.size(), config.environment.family_name()));
    }
    config.data.histories.reset();
    if (!paths.empty()) config.data.histories = paths.front();
    const fs::path file = family_file(config);
    if (fs::exists(file)) return;
    throw DataError(
        fmt::format("{} does not exist; expected learning histories there: name others after the "
                    "run{}",
                    file.string(), nearest_path(file)));
  }
  if (paths.empty()) return;
  config.data.histories = join(paths, ",");
  config.origins["histories"] = "command line";
}

std::string scored_paths(const RunConfig& config) {
  return config.data.histories.value_or(config.history_file().string());
}

std::vector<ScoredWindows::Task> scored_tasks(const RunConfig& config, std::vector<ScoredWindows::Task> tasks,
                                              const std::string& what) {
  const std::string& named = config.scoring.score_tasks;
  std::vector<int64_t> there;
  for (const ScoredWindows::Task& task : tasks) there.push_back(task.number);
  const NumberRanges all = NumberRanges::of(there);
  if (!names_a_side(named)) {
    const NumberRanges wanted = NumberRanges::parse(named).value();
    if (const NumberRanges absent = wanted.without(all); !absent.empty()) {
      throw ConfigError(fmt::format("score_tasks: found {}, and {} has the tasks {}; expected some of those",
                                    abridged(absent.text()), what, abridged(all.text())));
    }
    std::erase_if(tasks, [&](const ScoredWindows::Task& task) { return !wanted.contains(task.number); });
    return tasks;
  }
  if (named != "all") {
    std::erase_if(tasks, [&](const ScoredWindows::Task& task) { return task.trained != (named == "train"); });
  }
  if (!tasks.empty()) return tasks;
  const bool held_out = named == "test";
  throw DataError(fmt::format(
      "{} holds the tasks {}, {} of which the run has trained on; expected one that it has{}: name other "
      "histories, or --set score_tasks=all to score these all the same",
      what, abridged(all.text()), held_out ? "all" : "none", held_out ? " not" : ""));
}

std::unique_ptr<ScoredWindows> scored_windows(const RunConfig& config, const RunFolder& run,
                                              const Ranks& ranks, Console& console) {
  auto windows = config.environment.has_own_tasks() ? scored_own_tasks(config, run, ranks, console)
                                                    : family_windows(config, ranks, console);
  check_same(*ranks.communicator, fmt::format("the digest of the histories in {}", scored_paths(config)),
             windows->digest());
  return windows;
}

}  // namespace adtrain
