#pragma once

#include <string>

#include "base/Error.h"

namespace adtrain {

/// Something went wrong with environments in a worker: what is said of it, and the exit code by whose doing.
/// What was played before stays valid.
struct WorkerFault : Error {
  WorkerFault(ExitCode code, const std::string& message) : Error(code, message) {}
};

}  // namespace adtrain
