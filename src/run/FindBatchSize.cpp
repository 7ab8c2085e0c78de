#include "run/FindBatchSize.h"

#include <fmt/format.h>

#include "base/Fault.h"
#include "run/BatchSizes.h"
#include "run/LoadedNetwork.h"
#include "run/Ranks.h"
#include "run/RunConfig.h"
#include "run/TrainingInputs.h"
#include "telemetry/Console.h"
#include "watchdog/Activity.h"

namespace adtrain {
namespace {

ExitCode find_as_rank(RunConfig config, const std::vector<std::string>& notices, const Ranks& ranks) {
  Console console = Console::for_process(ranks.communicator->is_root());
  for (const std::string& notice : notices) console.notice(notice);
  if (!ranks.device.notice.empty()) console.notice(ranks.device.notice);
  Activity::of_this_process().begin("loading histories and model");
  const TrainingInputs inputs(config, ranks, console, {.histories = open_own_histories(config)});
  if (const std::string& missing = inputs.histories().missing_tasks(); !missing.empty())
    console.notice(missing);
  config.training.train_batch_size = kAutoBatchSize;
  // Beside what is remembered of other searches: the run's own folder may be in use by a run.
  const std::filesystem::path report =
      std::filesystem::path(config.run.runs_dir) / "batch_sizes" / config.folder().root.filename();
  const bool written = find_batch_sizes(config, ranks, inputs, console, report);
  const TrainingOptions& found = config.training;
  // Of a global batch that is given, the accumulation alone says how many sequences each rank takes at once.
  console.info(
      fmt::format("done: {}train with --set {}",
                  written ? fmt::format("{}.train_batch_size.png shows the trials; ", report.string()) : "",
                  found.global_batch_size
                      ? fmt::format("gradient_accumulation_steps={}", found.gradient_accumulation_steps)
                      : fmt::format("train_batch_size={}", found.train_batch_size)));
  return ExitCode::kDone;
}

}  // namespace

ExitCode find_batch_size_of_run(const std::filesystem::path& config_file,
                                const std::vector<std::string>& overrides) {
  Fault::of_this_process();  // reports a malformed value before anything starts
  std::vector<std::string> notices;
  RunConfig config = RunConfig::load(config_file, overrides, notices);
  refuse_to_train_quantised(config);
  config.training.batch_size_cache = false;
  return as_one_of_the_ranks(config,
                             [&](const Ranks& ranks) { return find_as_rank(config, notices, ranks); });
}

}  // namespace adtrain
