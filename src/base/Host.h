#pragma once

#include <string>

namespace adtrain {

/// This machine's host name; "unknown" where it has none. Thread-safe.
std::string host_name();

}  // namespace adtrain
