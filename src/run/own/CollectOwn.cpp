#include "run/own/CollectOwn.h"

#include <filesystem>

#include <fmt/format.h>

#include "base/Text.h"
#include "collection/CollectionSettings.h"
#include "collection/own/OwnCollector.h"
#include "data/formats/HistorySource.h"
#include "data/hdf5/Hdf5Metadata.h"
#include "environments/worker/WorkerPool.h"
#include "run/ShownCollection.h"

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

/// Throws DataError where an existing file is not what the configuration would collect, or lacks some of the
/// tasks that it names.
void check_kept(const std::filesystem::path& file, const RunConfig& config) {
  const auto source = HistorySource::open(file);
  check_collected_with(file, settings_of(file),
                       own_collection_settings(config.environment, config.collection, config.worker));
  if (!config.tasks.tasks) return;
  std::vector<NumberRange> held;
  for (const TaskHistories& task : source->tasks()) held.push_back({task.number, task.number});
  const NumberRanges found(std::move(held));
  const NumberRanges missing = NumberRanges::parse(*config.tasks.tasks)->without(found);
  if (missing.empty()) return;
  throw DataError(
      fmt::format("{}: exists already and holds the tasks {}, not {}, which are to be collected too; "
                  "expected a file with "
                  "all of them: choose another traj_dir or alg_seed, replace the file with --overwrite, or "
                  "ask for what it "
                  "holds with --set tasks={}",
                  file.string(), abridged(found.text()), abridged(missing.text()), found.text()));
}

/// What one worker says of the environments; it ends at once, as each task's have workers of their own.
WorkerHello hello_of(WorkerOptions options) {
  options.env_workers = 1;
  return WorkerPool(options, {}).hello();
}

}  // namespace

ExitCode collect_own_tasks(const CollectRequest& request, const RunConfig& config,
                           const std::vector<std::string>& notices) {
  expect_worker(config);
  refuse_gpu(config);
  Console console = Console::for_process(/*enabled=*/!request.json);
  for (const std::string& notice : notices) console.notice(notice);
  const std::filesystem::path file = config.history_file();
  if (std::filesystem::exists(file) && !request.overwrite) {
    check_kept(file, config);
    console.info(fmt::format(
        "{} exists already and is kept; collect another with --set alg_seed=…, or replace it with "
        "--overwrite",
        file.string()));
    return ExitCode::kDone;
  }
  const WorkerHello hello = hello_of(config.worker);
  const OwnCollector collector(config.environment, config.collection, config.worker, hello, config.tasks);
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
