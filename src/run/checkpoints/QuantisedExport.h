#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "base/Error.h"

namespace adtrain {

/// export_checkpoint for quantised weights.
ExitCode export_quantised(const std::filesystem::path& target, const std::filesystem::path& out,
                          const std::vector<std::string>& overrides);

}  // namespace adtrain
