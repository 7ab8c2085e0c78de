#include "run/sweep/SweepRun.h"

#include <algorithm>
#include <utility>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "base/Error.h"
#include "base/File.h"
#include "base/Text.h"
#include "checkpoint/CheckpointStore.h"
#include "run/ConfigChanges.h"
#include "run/RunState.h"
#include "run/figures/RecordedRun.h"

namespace adtrain {
namespace {

namespace fs = std::filesystem;

/// A YAML text, whatever it contains.
std::string as_yaml(const std::string& text) {
  return nlohmann::json(text).dump();
}

bool is_evaluated(const RunFolder& folder, int64_t step) {
  const RecordedRun run = RecordedRun::open(folder.root);
  return std::ranges::any_of(run.evaluations(), [&](const std::string& evaluation) {
    return run.evaluation(evaluation).identity.value("checkpoint_step", int64_t{-1}) == step;
  });
}

}  // namespace

SweepRun::SweepRun(SweepPoint point, const fs::path& config, const fs::path& sweep)
    : point_(std::move(point)), file_(config) {
  point_.overrides.push_back("runs_dir=" + as_yaml(sweep.string()));
  point_.overrides.push_back("run_name=" + as_yaml(point_.name));
  std::vector<std::string> notices;  // the run itself prints them
  config_ = RunConfig::load(file_, point_.overrides, notices);
}

SweepRun::Stage SweepRun::stage() const {
  const RunFolder folder = this->folder();
  if (!fs::exists(folder.config())) return Stage::kToTrain;
  // The number of ranks counts where it decides the global batch only, which `adtrain train` compares.
  const std::vector<ConfigChange> changes =
      changes_between(read_file(folder.config()), /*earlier_ranks=*/1, config_, /*ranks=*/1);
  std::vector<std::string> others;
  for (const ConfigChange& change : changes) {
    if (!change.free) others.push_back(change.text());
  }
  if (!others.empty()) {
    throw ConfigError(
        fmt::format("{} was started with other settings: {}; choose another sweep by --name, or begin all "
                    "its runs anew with --overwrite",
                    folder.root.string(), join(others, ", ")));
  }
  const std::optional<RunState> state = RunState::read(folder.state());
  const bool trained = state && state->stage == RunState::Stage::kFinished && changes.empty();
  if (!trained) return Stage::kToTrain;
  return is_evaluated(folder, state->step) ? Stage::kDone : Stage::kToEvaluate;
}

std::vector<std::string> SweepRun::command_line(Stage stage, bool overwrite) const {
  const RunFolder folder = this->folder();
  if (stage == Stage::kToEvaluate) return {"evaluate", folder.root.string()};
  std::vector<std::string> words = {"train", file_.string()};
  for (const std::string& assignment : point_.overrides) {
    words.emplace_back("--set");
    words.push_back(assignment);
  }
  const bool has_checkpoints =
      !CheckpointStore(folder.checkpoints(), config_.training.keep_checkpoints).empty();
  if (has_checkpoints) words.emplace_back(overwrite ? "--overwrite" : "--resume");
  return words;
}

}  // namespace adtrain
