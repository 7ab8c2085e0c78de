#pragma once

#include "base/Error.h"
#include "launch/LaunchContext.h"

namespace adtrain {

/// The exit code of a rank that stopped on request: kRequeue, which asks for a new start, or kDone under
/// torchrun, which takes every other code for a failure. The empty file `requeue` says there what the code
/// does not.
ExitCode stop_code(Launcher launcher);

}  // namespace adtrain
