#pragma once

#include <filesystem>

#include "base/Error.h"

namespace adtrain {

/// The command line of `adtrain compare`.
struct CompareRequest {
  std::filesystem::path first, second;  ///< folders of runs
  bool expect_equal = false;
  bool json = false;
};

/// Prints what two runs differ in. Returns kDone, whatever that is; with `expect_equal` kEnvironment where
/// they are not equal in all bits, as a failed `adtrain test` does. Throws ConfigError where a folder is no
/// run, CheckpointError where a checkpoint does not verify, DataError where results are damaged.
ExitCode compare(const CompareRequest& request);

}  // namespace adtrain
