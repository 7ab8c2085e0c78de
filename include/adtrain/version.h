#pragma once

#include <string>

namespace adtrain {

/// The version of the library, "0.1.0". Thread-safe.
std::string version();

}  // namespace adtrain
