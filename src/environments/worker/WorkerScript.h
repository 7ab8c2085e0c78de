#pragma once

#include <filesystem>

namespace adtrain {

/// The Python file that a worker runs: beside this program, or in ../share/adtrain, in a build folder as
/// where adtrain is installed. Throws EnvironmentError where it is in neither.
std::filesystem::path worker_script();

}  // namespace adtrain
