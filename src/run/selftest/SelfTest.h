#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "base/Error.h"

namespace adtrain {

/// What `adtrain test` was asked for.
struct SelfTestRequest {
  std::vector<std::string> overrides;        ///< "key=value" of any configuration key
  std::optional<int64_t> largest_mebibytes;  ///< of an all-reduce; none: 256 on GPUs, 32 on the CPU
  bool json = false;
};

/// Tries, under the launcher at hand, what every training run needs of the ranks: that they meet, who is
/// where, broadcasts and all-reduces with exact results and their speed, and one training step that leaves
/// equal parameters on all of them. Rank 0 prints tables and ends with a verdict in one line.
///
/// kDone, or kEnvironment on every rank where anything was wrong. Throws the Error family where ranks do not
/// meet or one is lost.
ExitCode self_test(const SelfTestRequest& request);

}  // namespace adtrain
