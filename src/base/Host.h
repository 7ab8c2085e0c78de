#pragma once

#include <string>

namespace adtrain {

/// The name by which this machine knows itself; "unknown" where it has none. Thread-safe.
std::string host_name();

}  // namespace adtrain
