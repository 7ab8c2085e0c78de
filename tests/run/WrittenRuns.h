#pragma once

#include <string>
#include <vector>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "base/File.h"
#include "base/SymbolicLink.h"
#include "run/figures/RecordedRun.h"
#include "support/TemporaryFolder.h"

namespace adtrain {

/// Folders that look like runs, with what a test puts into them.
class WrittenRuns {
 public:
  /// `yaml` is config.yaml.
  RecordedRun add(const std::string& name, const std::string& yaml) const {
    write_file_atomically(folder_.path() / name / "config.yaml", yaml);
    return open(name);
  }
  RecordedRun open(const std::string& name) const { return RecordedRun::open(folder_.path() / name); }
  void metrics(const std::string& name, const std::string& lines) const {
    write_file_atomically(folder_.path() / name / "metrics.jsonl", lines);
  }
  /// Results in `test-step-9`, which is the newest.
  void evaluation(const std::string& name, const std::vector<double>& mean, double oracle = 17,
                  int64_t repeats = 1) const {
    evaluation_in(folder_.path() / name / "evaluation" / "test-step-9", mean, oracle, repeats);
    point_link(folder_.path() / name / "evaluation" / "latest", "test-step-9");
  }
  static void evaluation_in(const std::filesystem::path& folder, const std::vector<double>& mean,
                            double oracle = 17, int64_t repeats = 1) {
    const nlohmann::json summary = {{"env", "darkroom"},   {"eval_seed", 0},   {"repeats", repeats},
                                    {"mean", mean},        {"std", mean},      {"last10_mean", mean.back()},
                                    {"random_floor", 0.5}, {"oracle", oracle}, {"episodes", mean.size()}};
    write_file_atomically(folder / "summary.json", summary.dump());
  }
  const std::filesystem::path& path() const { return folder_.path(); }

 private:
  TemporaryFolder folder_;
};

}  // namespace adtrain
