#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "base/Error.h"

namespace adtrain {

/// The command line of `adtrain evaluate`.
struct EvaluateRequest {
  std::filesystem::path
      target;  ///< a run folder (its newest checkpoint that verifies), or one checkpoint's folder
  std::vector<std::string> overrides;
  bool json = false;
};

/// Evaluates in context as one rank of the group that the launcher started and writes a folder of the run:
/// evaluation, or one beside it where that holds another evaluation's results (evaluation_folder). Returns
/// kDone. Where a signal stopped it, it returns kRequeue, or kDone under torchrun, and the folder holds
/// nothing new but an empty file `requeue`. Throws the Error family; where one of several ranks fails,
/// failure.txt is written to that folder.
ExitCode evaluate(const EvaluateRequest& request);

}  // namespace adtrain
