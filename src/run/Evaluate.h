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

/// Evaluates in context as one rank of the group that the launcher started and writes a folder of its own in
/// the run's `evaluation` (evaluation_folder), to which the link `latest` there then points. Returns kDone.
/// Where a signal stopped it, it returns stop_code, and the folder holds
/// nothing new but an empty file `requeue`. Throws the Error family; where one of several ranks fails,
/// failure.txt is written to that folder.
ExitCode evaluate(const EvaluateRequest& request);

}  // namespace adtrain
