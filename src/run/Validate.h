#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "base/Error.h"

namespace adtrain {

/// Checks a configuration and prints the resolved one. Throws one ConfigError with all errors.
ExitCode validate(const std::filesystem::path& config, const std::vector<std::string>& overrides, bool json);

/// Prints the reference of all keys.
ExitCode explain_configuration(bool json);

}  // namespace adtrain
