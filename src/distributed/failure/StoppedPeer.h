#pragma once

#include <cstdint>

#include "distributed/failure/Failure.h"

namespace adtrain {

/// When that process started, in the system's ticks since it booted; 0 where there is none. With its id it
/// names a process of a host for ever, as ids are given again.
int64_t start_of_process(int64_t process);

/// Continues (SIGCONT) a rank of this host that is stopped and that the run has given up, so that it hears
/// the verdict and leaves by itself: its launcher would give it a long while, in which a stopped process
/// cannot end (torchrun: 30 seconds). A process that runs, that a debugger holds, that is not ours or that is
/// another by now stays as it is.
void wake_if_stopped(const RankIdentity& who);

}  // namespace adtrain
