#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "base/Error.h"

namespace adtrain {

/// What `adtrain evaluate` was asked for.
struct EvaluateRequest {
  std::filesystem::path
      target;  ///< a run folder (its newest checkpoint that verifies), or one checkpoint's folder
  std::vector<std::string> overrides;
  bool json = false;
};

/// Evaluates in context as one rank of the group that the launcher started and writes the run's evaluation
/// folder. kDone, or kRequeue where it was stopped by a signal (nothing is written then). Throws the Error
/// family.
ExitCode evaluate(const EvaluateRequest& request);

}  // namespace adtrain
