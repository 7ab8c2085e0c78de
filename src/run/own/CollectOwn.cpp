#include "run/own/CollectOwn.h"

#include <cstdio>
#include <filesystem>
#include <optional>

#include <fmt/format.h>

#include "base/Text.h"
#include "collection/CollectionSettings.h"
#include "collection/own/FinishedTasks.h"
#include "collection/own/OwnCollector.h"
#include "data/formats/HistorySource.h"
#include "data/hdf5/Hdf5Metadata.h"
#include "environments/worker/WorkerPool.h"
#include "run/ShownCollection.h"
#include "run/own/OwnHistories.h"

namespace adtrain {
namespace {

void expect_worker(const RunConfig& config) {
  if (config.worker.env_worker) return;
  const std::string& env = config.environment.env;
  const std::string nearest = nearest_name(env, environment_names());
  throw ConfigError(
      fmt::format("env_worker: found none, and no task family is called '{}'{}; expected the module and "
                  "function of your environments, such as my_envs:make_env (docs/own-environments.md), or "
                  "env: {}",
                  env, nearest.empty() ? "" : fmt::format(": did you mean '{}'?", nearest),
                  join(environment_names(), ", ")));
}

void refuse_gpu(const RunConfig& config) {
  if (config.run.device != DeviceChoice::kCuda) return;
  throw EnvironmentError(
      "device: cuda is asked for, and the source algorithm learns your own tasks on the CPU alone; set "
      "device: auto or cpu");
}

/// No run could be trained on others.
void expect_numbers_to_train_on(const NumberRanges& tasks) {
  if (tasks.largest() <= OwnHistories::kLargestNumber) return;
  throw ConfigError(
      fmt::format("tasks: found task {}; expected numbers up to {}, as training shuffles all numbers up to "
                  "the largest to split the tasks: number them from 0 on, and let make_env or TASKS say "
                  "what they stand for",
                  tasks.largest(), OwnHistories::kLargestNumber));
}

/// Text attributes of the root are what the file was collected with.
HistorySettings settings_of(const std::filesystem::path& file) {
  Hdf5Metadata metadata;
  HistorySettings settings;
  const nlohmann::json attributes = metadata.attributes(file.string(), "/");
  for (const auto& [name, value] : attributes.items()) {
    if (value.is_string()) settings[name] = value.get<std::string>();
  }
  return settings;
}

/// What one worker says of the environments; it ends at once, as each task's have workers of their own.
WorkerHello hello_of(WorkerOptions options) {
  options.env_workers = 1;
  return WorkerPool(options, {}).hello();
}

/// The same, for a file that is complete: it is of use without its environments, so where no worker starts,
/// that is said, and nothing is returned.
std::optional<WorkerHello> hello_if_any(const WorkerOptions& options, Console& console) {
  try {
    return hello_of(options);
  } catch (const Error& error) {
    console.warn(fmt::format(
        "whether the tasks of {} are still those of the file is not known, as no worker starts: {}",
        *options.env_worker, error.what()));
    return std::nullopt;
  }
}

FinishedTasks tasks_in(const HistorySource& source) {
  FinishedTasks tasks;
  for (const TaskHistories& task : source.tasks()) {
    const auto name = task.attributes.find("task");
    FinishedTask& found = tasks[task.number];
    if (name != task.attributes.end()) found.name = name->second;
  }
  return tasks;
}

/// Throws DataError where a file lacks some of the tasks that are to be collected.
void check_held(const std::filesystem::path& file, const FinishedTasks& tasks, const NumberRanges& wanted) {
  std::vector<int64_t> held;
  for (const auto& [number, ignored] : tasks) held.push_back(number);
  const NumberRanges found = NumberRanges::of(held), missing = wanted.without(found);
  if (missing.empty()) return;
  throw DataError(
      fmt::format("{}: exists already and holds the tasks {}, not {}, which are to be collected too; "
                  "expected a file with all of them: choose another traj_dir or alg_seed, replace the file "
                  "with --overwrite, or ask for what it holds with --set tasks={}",
                  file.string(), abridged(found.text()), abridged(missing.text()), found.text()));
}

/// Throws DataError where the environments by now call tasks of a file otherwise.
void check_names(const std::filesystem::path& file, const FinishedTasks& tasks, const WorkerHello& hello,
                 const std::string& env_worker) {
  const std::vector<std::string> differing = renamed(tasks, hello);
  if (differing.empty()) return;
  throw DataError(fmt::format(
      "{}: exists already and was collected with other tasks of {}: {}; expected the same TASKS in the same "
      "order: restore them, choose another traj_dir or alg_seed, or replace the file with --overwrite",
      file.string(), env_worker, abridged(join(differing, ", "))));
}

/// Throws DataError where an existing file is not what the configuration would collect, or lacks some of its
/// tasks.
void check_kept(const std::filesystem::path& file, const RunConfig& config, Console& console) {
  const auto source = HistorySource::open(file);
  const HistorySettings settings = settings_of(file);
  check_collected_with(file, settings,
                       own_collection_settings(config.environment, config.collection, config.worker));
  const FinishedTasks tasks = tasks_in(*source);
  const std::string& env_worker = *config.worker.env_worker;
  const std::optional<WorkerHello> hello = hello_if_any(config.worker, console);
  // A file of other programs does not say of which environments its tasks are.
  if (hello && settings.contains("env_worker")) {
    check_held(file, tasks, OwnCollector::tasks_of(*hello, config.tasks, env_worker));
    check_names(file, tasks, *hello, env_worker);
  } else if (config.tasks.tasks) {
    check_held(file, tasks, NumberRanges::parse(*config.tasks.tasks).value());
  }
}

}  // namespace

ExitCode collect_own_tasks(const CollectRequest& request, const RunConfig& config,
                           const std::vector<std::string>& notices) {
  expect_worker(config);
  refuse_gpu(config);
  Console console = Console::for_process(/*enabled=*/true, request.json ? stderr : stdout);
  for (const std::string& notice : notices) console.notice(notice);
  const std::filesystem::path file = config.history_file();
  if (std::filesystem::exists(file) && !request.overwrite) {
    check_kept(file, config, console);
    console.info(fmt::format(
        "{} exists already and is kept; collect another with --set alg_seed=…, or replace it with "
        "--overwrite",
        file.string()));
    return ExitCode::kDone;
  }
  const WorkerHello hello = hello_of(config.worker);
  const OwnCollector collector(config.environment, config.collection, config.worker, hello, config.tasks);
  expect_numbers_to_train_on(collector.tasks());
  const PpoSettings ppo = config.collection.ppo(config.environment.family());
  const auto bytes = static_cast<double>(collector.file_bytes());
  console.banner(
      "Collecting learning histories",
      {{"tasks", fmt::format("{} of {}{}", collector.tasks().count(), *config.worker.env_worker,
                             config.tasks.tasks ? ": " + abridged(collector.tasks().text()) : "")},
       {"spaces", fmt::format("{} → {}", hello.observation.text(), hello.action.text())},
       {"source", fmt::format("PPO, {} streams × {} steps a task", ppo.streams, ppo.history_steps())},
       {"workers", fmt::format("env_workers {} for each of {} at once ({})", config.worker.env_workers,
                               collector.tasks_at_once(), hello.versions)},
       {"file", file.string()},
       {"size", human_bytes(bytes) + " before compression"}});
  return collect_shown({.file = file, .tasks = collector.tasks().count(), .oracle = {}}, request, console,
                       [&](const CollectionListener& listener, ExistingHistories existing) {
                         return collector.run(file, listener, existing);
                       });
}

}  // namespace adtrain
