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

/// Evaluates in context as one rank of the group that the launcher started and writes a folder of the run:
/// evaluation, or one beside it where another evaluation's results are there (evaluation_folder). kDone;
/// where it was stopped by a signal kRequeue, or under torchrun kDone, and the folder holds nothing new but
/// an empty file `requeue`. Throws the Error family; where a rank of several fails, failure.txt stands in
/// that folder.
ExitCode evaluate(const EvaluateRequest& request);

}  // namespace adtrain
