#include "run/sweep/SweepRun.h"

#include <algorithm>
#include <optional>
#include <utility>

#include <c10/core/DeviceType.h>
#include <c10/core/ScalarType.h>
#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "base/Error.h"
#include "base/File.h"
#include "base/Text.h"
#include "checkpoint/CheckpointStore.h"
#include "environments/TaskFamily.h"
#include "environments/TaskSplit.h"
#include "evaluation/EvaluationFolder.h"
#include "evaluation/InContextEvaluation.h"
#include "run/ConfigChanges.h"
#include "run/EvaluationWorkers.h"
#include "run/RunState.h"
#include "run/figures/RecordedRun.h"
#include "run/figures/RunGroups.h"

namespace adtrain {
namespace {

namespace fs = std::filesystem;

/// A YAML text, whatever it contains.
std::string as_yaml(const std::string& text) {
  return nlohmann::json(text).dump();
}

/// Whether a run with another value of this key is the same run of the sweep: the key names places, or says
/// how the run is carried out and recorded.
bool changes_nothing(const std::string& key) {
  return only_repeats(key) && !key.ends_with("seed");
}

/// In which the run's network may be evaluated; where `device` is open, the GPUs decide that are there then.
std::vector<at::ScalarType> evaluated_types(const RunConfig& config) {
  std::vector<at::ScalarType> types;
  if (config.run.device != DeviceChoice::kCuda) types.push_back(evaluated_type(config, at::kCPU));
  if (config.run.device != DeviceChoice::kCpu) types.push_back(evaluated_type(config, at::kCUDA));
  return types;
}

/// Whether the newest evaluation is that of this step with the run's own settings: it lies in the folder that
/// `adtrain evaluate` chooses for that one, and for no other.
bool is_evaluated(const RunConfig& config, int64_t step) {
  const RunFolder folder = config.folder();
  const RecordedRun run = RecordedRun::open(folder.root);
  if (run.evaluations().empty()) return false;
  const EvaluationSummary newest = run.evaluation(kLatestEvaluation);
  const EnvironmentOptions& environment = config.environment;
  std::optional<TaskFamily> family;
  if (!environment.has_own_tasks()) family = TaskFamily::of(environment);
  EvaluationOrigin origin = EvaluationOrigin::of(environment, family, step);
  std::vector<int64_t> tasks;
  if (config.worker.env_worker) {
    origin.worker = EvaluationOrigin::Worker::of(config.worker);
    // The worker alone knows which there are; a limit to them is in the folder's name.
    tasks = newest.identity.value("tasks", tasks);
  } else if (family) {
    tasks =
        evaluated_tasks(config.evaluation, TaskSplit::of(environment, family->task_count(), config.tasks));
  }
  return std::ranges::any_of(evaluated_types(config), [&](at::ScalarType type) {
    origin.type = type;
    const fs::path own =
        evaluation_folder(folder.evaluation(), evaluation_identity(tasks, origin, config.evaluation),
                          config.evaluation, /*usual=*/config.evaluation);
    return own.filename() == newest.name;
  });
}

}  // namespace

SweepRun::SweepRun(SweepPoint point, const fs::path& config, const fs::path& sweep)
    : point_(std::move(point)), file_(config) {
  overrides_ = point_.overrides;
  overrides_.push_back("runs_dir=" + as_yaml(sweep.string()));
  overrides_.push_back("run_name=" + as_yaml(point_.name));
  std::vector<std::string> notices;  // the run itself prints them
  config_ = RunConfig::load(file_, overrides_, notices);
}

SweepRun::Stage SweepRun::stage() const {
  const RunFolder folder = this->folder();
  if (!fs::exists(folder.config())) return Stage::kToTrain;
  // The number of ranks is the sweep's to compare: it decides the global batch where nothing else does.
  std::vector<std::string> others;
  for (const ConfigChange& change :
       changes_between(read_file(folder.config()), /*earlier_ranks=*/1, config_, /*ranks=*/1)) {
    if (!changes_nothing(change.key)) others.push_back(change.text());
  }
  if (!others.empty()) {
    throw ConfigError(
        fmt::format("{} was started with other settings: {}; choose another sweep by --name, or begin all "
                    "its runs anew with --overwrite",
                    folder.root.string(), join(others, ", ")));
  }
  const std::optional<RunState> state = RunState::read(folder.state());
  if (!state || state->stage != RunState::Stage::kFinished) return Stage::kToTrain;
  return is_evaluated(config_, state->step) ? Stage::kDone : Stage::kToEvaluate;
}

std::vector<std::string> SweepRun::command_line(Stage stage, int64_t threads) const {
  const RunFolder folder = this->folder();
  std::vector<std::string> words = {"evaluate", folder.root.string()};
  if (stage == Stage::kToTrain) {
    words = {"train", file_.string()};
    for (const std::string& assignment : overrides_) words.insert(words.end(), {"--set", assignment});
    const bool has_checkpoints =
        !CheckpointStore(folder.checkpoints(), config_.training.keep_checkpoints).empty();
    if (has_checkpoints) words.emplace_back("--resume");
  }
  if (threads > 0 && !config_.run.cpu_threads)
    words.insert(words.end(), {"--set", fmt::format("cpu_threads={}", threads)});
  return words;
}

}  // namespace adtrain
