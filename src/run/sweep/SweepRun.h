#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

#include "run/RunConfig.h"
#include "run/sweep/SweepGrid.h"

namespace adtrain {

/// One run of a sweep as its folder shows it, so that a sweep that was interrupted needs no memory of its
/// own.
class SweepRun {
 public:
  enum class Stage { kToTrain, kToEvaluate, kDone };

  /// Reads the configuration, with the run's folder at `sweep`/name. Throws ConfigError.
  SweepRun(SweepPoint point, const std::filesystem::path& config, const std::filesystem::path& sweep);

  const std::string& name() const { return point_.name; }
  const RunConfig& config() const { return config_; }
  RunFolder folder() const { return config_.folder(); }
  const std::vector<std::string>& overrides() const { return point_.overrides; }

  /// What remains to be done. Throws ConfigError where the folder holds a run whose settings mean something
  /// else.
  Stage stage() const;
  /// adtrain's command line that does it: of `adtrain train`, which continues what is there, or of `adtrain
  /// evaluate`.
  std::vector<std::string> command_line(Stage stage, bool overwrite) const;

 private:
  SweepPoint point_;
  std::filesystem::path file_;
  RunConfig config_;
};

}  // namespace adtrain
