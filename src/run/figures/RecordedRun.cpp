#include "run/figures/RecordedRun.h"

#include <algorithm>

#include <fmt/format.h>

#include "base/Error.h"
#include "base/File.h"
#include "base/Text.h"
#include "evaluation/EvaluationFolder.h"

namespace adtrain {

namespace fs = std::filesystem;

namespace {

/// Where an earlier adtrain put a run's first results; names of other evaluations began with it.
constexpr const char* kEarlier = "evaluation";

}  // namespace

std::vector<fs::path> evaluation_folders(const RunFolder& folder) {
  std::vector<fs::path> found;
  std::error_code unreadable;
  const auto add = [&found](const fs::directory_entry& entry) {
    const bool is_finished = !entry.path().filename().string().ends_with(kIncompleteEvaluation);
    if (is_finished && !entry.is_symlink() && fs::exists(entry.path() / "summary.json"))
      found.push_back(entry.path());
  };
  for (const auto& entry : fs::directory_iterator(folder.evaluation(), unreadable)) add(entry);
  for (const auto& entry : fs::directory_iterator(folder.root, unreadable)) {
    if (entry.path().filename().string().starts_with(kEarlier)) add(entry);
  }
  return found;
}

RecordedRun RecordedRun::open(fs::path root) {
  root = root.lexically_normal();
  if (root.filename().empty() && root.has_parent_path()) root = root.parent_path();
  RecordedRun run;
  run.name = abridged(root.string());
  run.folder.root = root;
  if (!fs::is_regular_file(run.folder.config())) {
    throw ConfigError(
        fmt::format("{} is not a run: there is no {}; expected a folder such as runs/quickstart", run.name,
                    run.folder.config().string()));
  }
  run.config = values_of(read_file(run.folder.config()));
  return run;
}

std::map<std::string, Curve> RecordedRun::metrics() const {
  if (!fs::exists(folder.metrics())) {
    throw DataError(
        fmt::format("{} has no metrics.jsonl, which training writes; it holds no training curves", name));
  }
  return read_metrics(folder.metrics());
}

std::vector<std::string> RecordedRun::evaluations() const {
  std::vector<std::string> found;
  for (const fs::path& place : evaluation_folders(folder)) found.push_back(place.filename().string());
  std::ranges::sort(found);
  return found;
}

std::string RecordedRun::newest_of(const std::vector<std::string>& found) const {
  std::error_code none;
  const std::string linked =
      fs::read_symlink(folder.evaluation() / kLatestEvaluation, none).filename().string();
  if (std::ranges::find(found, linked) != found.end()) return linked;
  return std::ranges::find(found, kEarlier) != found.end() ? kEarlier
         : found.size() == 1                               ? found.front()
                                                           : kLatestEvaluation;
}

EvaluationSummary RecordedRun::evaluation(const std::string& evaluation) const {
  const std::vector<std::string> found = evaluations();
  const std::string chosen = evaluation == kLatestEvaluation ? newest_of(found) : evaluation;
  if (std::ranges::find(found, chosen) == found.end()) {
    throw DataError(fmt::format(
        "{} has no {}; evaluate it first: adtrain evaluate {}{}", name,
        chosen == kLatestEvaluation ? "evaluation that is known to be the newest"
                                    : fmt::format("evaluation '{}'", abridged(chosen)),
        name,
        found.empty() ? "" : fmt::format("; or choose by --evaluation what it has: {}", join(found, ", "))));
  }
  const fs::path place = folder.evaluation() / chosen;
  return EvaluationSummary::read(fs::exists(place) ? place : folder.root / chosen);
}

}  // namespace adtrain
