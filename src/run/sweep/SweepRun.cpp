#include "run/sweep/SweepRun.h"

#include <algorithm>
#include <utility>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "base/Error.h"
#include "base/File.h"
#include "base/Text.h"
#include "checkpoint/CheckpointStore.h"
#include "evaluation/EvaluationFolder.h"
#include "run/ConfigChanges.h"
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

/// Whether the newest evaluation is that of this step with the run's own settings.
bool is_evaluated(const RunFolder& folder, int64_t step, const EvaluationOptions& options,
                  const std::optional<std::string>& env_worker) {
  const RecordedRun run = RecordedRun::open(folder.root);
  if (run.evaluations().empty()) return false;
  const auto found = run.evaluation(kLatestEvaluation).identity;
  if (found.value("env_worker", "") != env_worker.value_or("")) return false;
  EvaluationOrigin origin;
  origin.checkpoint_step = step;
  const auto expected = evaluation_identity({}, origin, options);
  return std::ranges::all_of(
      std::initializer_list<const char*>{"checkpoint_step", "eval_tasks", "eval_seed", "eval_sampling",
                                         "eval_terminal_observation", "repeats", "episodes"},
      [&](const char* key) { return found.contains(key) && found[key] == expected.at(key); });
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
  const bool is_done = is_evaluated(folder, state->step, config_.evaluation, config_.worker.env_worker);
  return is_done ? Stage::kDone : Stage::kToEvaluate;
}

std::vector<std::string> SweepRun::command_line(Stage stage, int64_t threads, bool overwrite) const {
  const RunFolder folder = this->folder();
  std::vector<std::string> words = {"evaluate", folder.root.string()};
  if (stage == Stage::kToTrain) {
    words = {"train", file_.string()};
    for (const std::string& assignment : overrides_) words.insert(words.end(), {"--set", assignment});
    const bool has_checkpoints =
        !CheckpointStore(folder.checkpoints(), config_.training.keep_checkpoints).empty();
    if (has_checkpoints) words.emplace_back(overwrite ? "--overwrite" : "--resume");
  }
  if (threads > 0 && !config_.run.cpu_threads)
    words.insert(words.end(), {"--set", fmt::format("cpu_threads={}", threads)});
  return words;
}

}  // namespace adtrain
