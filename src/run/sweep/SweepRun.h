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
  /// What sets it apart, and what all share.
  const std::vector<std::string>& settings() const { return point_.overrides; }

  /// What remains to be done. Throws ConfigError where the folder holds a run of other settings.
  Stage stage() const;
  /// adtrain's command line that does it: of `adtrain train`, which continues what is there, or of `adtrain
  /// evaluate`. `threads` is cpu_threads where the configuration leaves it open; 0 leaves it open, too.
  std::vector<std::string> command_line(Stage stage, int64_t threads) const;

 private:
  SweepPoint point_;
  std::filesystem::path file_;
  std::vector<std::string> overrides_;  ///< the settings, and where the run is
  RunConfig config_;
};

}  // namespace adtrain
