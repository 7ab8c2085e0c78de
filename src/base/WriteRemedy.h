#pragma once

#include <filesystem>
#include <string>

namespace adtrain {

/// What a user can do where a file in `folder` could not be written, by the operating system's reason: "make
/// room in runs/a, where 0 B are free".
std::string write_remedy(const std::filesystem::filesystem_error& error, const std::filesystem::path& folder);

}  // namespace adtrain
