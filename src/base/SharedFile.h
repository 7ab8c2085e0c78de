#pragma once

#include <filesystem>

namespace adtrain {

/// A file that comes with this program: beside it, or in ../share/adtrain, in a build folder as where adtrain
/// is installed. `purpose` says what the file is for: "that environments run under". Throws EnvironmentError
/// where it is in neither.
std::filesystem::path shared_file(const char* name, const char* purpose);

}  // namespace adtrain
