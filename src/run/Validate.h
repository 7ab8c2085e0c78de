#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "base/Error.h"

namespace adtrain {

/// Checks a configuration and prints what it resolves to. Throws ConfigError with all that is wrong.
ExitCode validate(const std::filesystem::path& config, const std::vector<std::string>& overrides, bool json);

/// Prints the reference of all keys.
ExitCode explain_configuration(bool json);

}  // namespace adtrain
