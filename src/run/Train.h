#pragma once

#include <cstdint>
#include <filesystem>
#include <limits>
#include <string>
#include <vector>

#include "base/Error.h"

namespace adtrain {

/// The command line of `adtrain train`.
struct TrainRequest {
  std::filesystem::path config;
  std::vector<std::string> overrides;
  bool resume = false;
  bool overwrite = false;
  std::vector<std::string> allowed_changes;  ///< keys that may differ from the run that is continued
  bool json = false;                         ///< print the result as a JSON document, and all else elsewhere
  int64_t stop_after = std::numeric_limits<int64_t>::max();
};

/// Trains as one rank of the run that the launcher started. Ranks may have been given different requests for
/// the same configuration: what rank 0 was asked for counts. Throws the Error family. Returns kDone at the
/// end of the run; kRequeue where it stopped on request, with a checkpoint of its last step.
ExitCode train(const TrainRequest& request);

}  // namespace adtrain
