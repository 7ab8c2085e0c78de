#include "run/Collect.h"

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "base/Clock.h"
#include "base/Gpu.h"
#include "base/StandardStreams.h"
#include "base/Text.h"
#include "collection/CollectionSettings.h"
#include "collection/Collector.h"
#include "collectives/StopRequest.h"
#include "data/HistoryFile.h"
#include "data/HistoryReplay.h"
#include "environments/TaskFamily.h"
#include "launch/LaunchContext.h"
#include "run/RunConfig.h"
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
      "in "
      "the file: replace the file with --overwrite, choose another traj_dir or alg_seed, or set {}: false",
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
        "for "
        "what it holds with --set tasks={}",
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
                  "were started ({}); "
                  "start it once, without a launcher",
                  context.world_size, context.evidence));
}

}  // namespace

ExitCode collect(const CollectRequest& request) {
  refuse_several_processes();
  std::vector<std::string> notices;
  const RunConfig config = RunConfig::load(request.config, request.overrides, notices);
  const std::filesystem::path file = config.history_file();
  const TaskFamily family = TaskFamily::of(config.environment);
  const PpoSettings ppo = config.collection.ppo(config.environment.family());
  const NumberRanges tasks = config.tasks.present(family.task_count());
  const double oracle = mean_oracle(family, tasks);

  Console console = Console::for_process(/*enabled=*/!request.json);
  for (const std::string& notice : notices) console.notice(notice);
  if (std::filesystem::exists(file) && !request.overwrite) {
    check_kept(file, config, family, tasks);
    console.info(fmt::format(
        "{} exists already and is kept; collect another with --set alg_seed=…, or replace it with "
        "--overwrite",
        file.string()));
    return ExitCode::kDone;
  }
  const std::filesystem::path partial = file.string() + ".partial";
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
       {"size", human_bytes(static_cast<double>(collector.file_bytes())) +
                    (config.collection.history_compression > 0 ? " before compression" : "")}});

  if (std::filesystem::exists(partial)) {
    console.info(request.overwrite ? "continuing the collection that was stopped, if its settings were these"
                                   : "continuing the collection that was stopped");
  }
  if (std::filesystem::exists(file))
    console.info("the file that is there is kept until the new one is complete");

  const Stopwatch watch;
  const StopRequest stop;
  double final_return = 0;
  bool complete = false;
  {
    Progress progress(console, "collecting", tasks.count(), "tasks");
    CollectionListener listener;
    listener.stop = [] { return StopRequest::signal_number() != 0; };
    listener.progress = [&](const CollectionProgress& state) {
      final_return = state.mean_final_return;
      progress.update(state.tasks_done, fmt::format("return at the end of learning {:.2f} (oracle {:.2f})",
                                                    state.mean_final_return, oracle));
    };
    listener.damage = [&console](const std::string& reason) {
      console.warn(reason + "; its task is learnt again");
    };
    complete = collector.run(file, listener,
                             request.overwrite ? ExistingHistories::kReplace : ExistingHistories::kRefuse);
  }
  if (!complete) {
    console.info("stopped; the finished tasks are kept and the same command continues");
    return ExitCode::kRequeue;
  }
  const double seconds = watch.seconds();
  if (request.json) {
    const nlohmann::json summary = {{"file", file.string()},
                                    {"tasks", tasks.count()},
                                    {"seconds", seconds},
                                    {"mean_final_return", final_return},
                                    {"oracle", oracle}};
    print_answer(summary.dump(2) + "\n");
  } else {
    console.info(fmt::format("{} written in {}: mean return at the end of learning {:.2f}, oracle {:.2f}",
                             file.string(), human_duration(seconds), final_return, oracle));
  }
  return ExitCode::kDone;
}

}  // namespace adtrain
