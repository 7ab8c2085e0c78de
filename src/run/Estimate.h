#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

#include "base/Error.h"

namespace adtrain {

/// What `adtrain estimate` is asked for.
struct EstimateRequest {
  std::filesystem::path config;
  std::vector<std::string> overrides;
  std::vector<int64_t> gpus = {1, 2, 4, 8};       ///< numbers of ranks
  std::vector<double> memory_gb = {40, 80, 141};  ///< of one GPU, decimal
  bool json = false;
};

/// Prints what training takes of each GPU's memory, without a GPU: by parts, over precisions and numbers of
/// GPUs, and the largest batch that fits. Throws ConfigError.
ExitCode estimate(const EstimateRequest& request);

}  // namespace adtrain
