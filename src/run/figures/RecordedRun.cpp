#include "run/figures/RecordedRun.h"

#include <algorithm>

#include <fmt/format.h>

#include "base/Error.h"
#include "base/File.h"
#include "base/Text.h"

namespace adtrain {

namespace fs = std::filesystem;

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
  std::error_code unreadable;
  for (const auto& entry : fs::directory_iterator(folder.root, unreadable)) {
    const std::string candidate = entry.path().filename().string();
    if (candidate.starts_with(folder.evaluation().filename().string()) &&
        fs::exists(entry.path() / "summary.json")) {
      found.push_back(candidate);
    }
  }
  std::ranges::sort(found);
  return found;
}

EvaluationSummary RecordedRun::evaluation(const std::string& evaluation) const {
  const std::vector<std::string> found = evaluations();
  if (std::ranges::find(found, evaluation) == found.end()) {
    throw DataError(fmt::format(
        "{} has no results in {}/; evaluate it first: adtrain evaluate {}{}", name, evaluation, name,
        found.empty() ? "" : fmt::format("; or choose by --evaluation what it has: {}", join(found, ", "))));
  }
  return EvaluationSummary::read(folder.root / evaluation);
}

}  // namespace adtrain
