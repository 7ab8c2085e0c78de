#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "config/Section.h"

namespace adtrain {

/// Optimizer steps as the log counts them: the first one of a run is 1.
struct StepRange {
  int64_t first, last;  ///< both inclusive
};

/// Which steps of which ranks are profiled.
struct ProfileOptions {
  std::optional<std::string> steps;
  std::string ranks = "all";

  void declare(Section& section);
  /// `train_timesteps`: of the run.
  void check(Findings& findings, int64_t train_timesteps) const;

  /// None where nothing is profiled. The options must have been checked.
  std::optional<StepRange> range() const;
  /// The profiled ranks, in order. Throws ConfigError where one of them is none of the run's.
  std::vector<int64_t> ranks_of(int64_t world_size) const;
};

}  // namespace adtrain
