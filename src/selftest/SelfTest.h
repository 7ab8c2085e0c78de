#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "base/Error.h"

namespace adtrain {

/// The command line of `adtrain test`.
struct SelfTestRequest {
  std::vector<std::string> overrides;        ///< "key=value" of any configuration key
  std::optional<int64_t> largest_mebibytes;  ///< of an all-reduce; none: 256 on GPUs, 32 on the CPU
  bool json = false;
};

/// Tests, under the current launcher, what every training run needs of the ranks: that they meet and where
/// each runs, exact results and the speed of broadcasts and all-reduces, and one training step after which
/// all have equal parameters. Rank 0 prints tables and ends with a verdict in one line.
///
/// Returns kDone, or kEnvironment on every rank where anything was wrong. Throws the Error family where ranks
/// do not meet or one is lost.
ExitCode self_test(const SelfTestRequest& request);

}  // namespace adtrain
