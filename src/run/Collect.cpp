#include "run/Collect.h"

#include <cstdio>

#include <fmt/format.h>

#include "base/Gpu.h"
#include "base/Text.h"
#include "collection/CollectionSettings.h"
#include "collection/Collector.h"
#include "data/HistoryFile.h"
#include "data/HistoryReplay.h"
#include "environments/TaskFamily.h"
#include "launch/LaunchContext.h"
#include "run/RunConfig.h"
#include "run/ShownCollection.h"
#include "run/own/CollectOwn.h"
#include "telemetry/Console.h"

namespace adtrain {
namespace {

double mean_oracle(const TaskFamily& family, const NumberRanges& tasks) {
  double sum = 0;
  for (const int64_t task : tasks.numbers()) sum += family.best_return(task);
  return sum / static_cast<double>(tasks.count());
}

/// Throws EnvironmentError where a GPU is requested and cannot be used.
CollectionDevice device_of(const RunConfig& config) {
  if (config.run.device == DeviceChoice::kCpu) return CollectionDevice::kCpu;
  const bool asked = config.run.device == DeviceChoice::kCuda;
  if (visible_gpu_count() == 0) {
    if (!asked) return CollectionDevice::kCpu;
    throw EnvironmentError(
        "device: cuda is asked for, and no GPU is visible; expected one (see nvidia-smi and "
        "CUDA_VISIBLE_DEVICES), or device: auto or cpu");
  }
  const auto objection =
      Collector(config.environment, config.collection, CollectionDevice::kGpu).gpu_objection();
  if (!objection) return CollectionDevice::kGpu;
  if (!asked) return CollectionDevice::kCpu;
  throw EnvironmentError(fmt::format("device: cuda is asked for, and {}; or set device: cpu", *objection));
}

/// Throws DataError where an existing file was collected without data sets that `key` asks for.
void check_holds(const std::filesystem::path& file, const HistorySettings& settings, const std::string& key,
                 bool wanted) {
  const auto found = settings.find(key);
  if (!wanted || (found != settings.end() && found->second == "true")) return;
  throw DataError(fmt::format(
      "{}: exists already and was collected with {} false, and {}: true asks for that data set; expected it "
      "in the file: replace the file with --overwrite, choose another traj_dir or alg_seed, or set {}: false",
      file.string(), key, key, key));
}

/// Throws DataError where an existing file is not what the configuration would collect, or lacks some of its
/// tasks. For a file that does not say how it was collected, the first task is replayed.
void check_kept(const std::filesystem::path& file, const RunConfig& config, const TaskFamily& family,
                const NumberRanges& tasks) {
  const HistoryFile histories(file);
  check_collected_with(file, histories.settings(),
                       collection_settings(config.environment, config.collection));
  if (const NumberRanges missing = tasks.without(histories.tasks()); !missing.empty()) {
    throw DataError(fmt::format(
        "{}: exists already and holds the tasks {}, not {}, which are to be collected too; expected a file "
        "with all of them: choose another traj_dir or alg_seed, replace the file with --overwrite, or ask "
        "for what it holds with --set tasks={}",
        file.string(), abridged(histories.tasks().text()), abridged(missing.text()),
        histories.tasks().text()));
  }
  if (!histories.settings().empty()) {
    check_holds(file, histories.settings(), "write_compress_markers",
                config.collection.write_compress_markers == RolloutMarkers::kYes);
    check_holds(file, histories.settings(), "optimal_actions", config.collection.optimal_actions);
    return;
  }
  const int64_t task = histories.tasks().smallest();
  const History first = histories.read(task, histories.steps(), histories.streams(),
                                       {family.grid_size(), family.num_actions()});
  check_by_replay(file.string(), task, first, family);
}

void refuse_several_processes() {
  const LaunchContext context = LaunchContext::detect();
  if (context.world_size == 1) return;
  throw EnvironmentError(
      fmt::format("adtrain collect is one process, which uses all cores or a GPU by itself, and {} of them "
                  "were started ({}); start it once, without a launcher",
                  context.world_size, context.evidence));
}

}  // namespace

ExitCode collect(const CollectRequest& request) {
  refuse_several_processes();
  std::vector<std::string> notices;
  const RunConfig config = RunConfig::load(request.config, request.overrides, notices);
  if (config.environment.has_own_tasks()) return collect_own_tasks(request, config, notices);
  const std::filesystem::path file = config.history_file();
  const TaskFamily family = TaskFamily::of(config.environment);
  const PpoSettings ppo = config.collection.ppo(config.environment.family());
  const NumberRanges tasks = config.tasks.present(family.task_count());
  const double oracle = mean_oracle(family, tasks);

  Console console = Console::for_process(/*enabled=*/true, request.json ? stderr : stdout);
  for (const std::string& notice : notices) console.notice(notice);
  if (std::filesystem::exists(file) && !request.overwrite) {
    check_kept(file, config, family, tasks);
    console.info(fmt::format(
        "{} exists already and is kept; collect another with --set alg_seed=…, or replace it with "
        "--overwrite",
        file.string()));
    return ExitCode::kDone;
  }
  const CollectionDevice device = device_of(config);
  const Collector collector(config.environment, config.collection, device, config.tasks);
  const std::string threads = fmt::format("{} threads", config.collection.threads());
  console.banner(
      "Collecting learning histories",
      {{"tasks", fmt::format("{} of {}{}", tasks.count(), family.name(),
                             config.tasks.tasks ? ": " + abridged(tasks.text()) : "")},
       {"source", fmt::format("PPO, {} streams × {} steps a task", ppo.streams, ppo.history_steps())},
       {"device", device == CollectionDevice::kGpu ? "GPU, and " + threads + " that write" : threads},
       {"file", file.string()},
       {"size",
        human_bytes(static_cast<double>(collector.file_bytes())) +
            (config.collection.compression(config.environment.family()) > 0 ? " before compression" : "")}});

  return collect_shown({.file = file, .tasks = tasks.count(), .oracle = oracle}, request, console,
                       [&collector, &file](const CollectionListener& listener, ExistingHistories existing) {
                         return collector.run(file, listener, existing);
                       });
}

}  // namespace adtrain
