#pragma once

#include <cstdint>

#include "watchdog/Failure.h"

namespace adtrain {

/// When that process started, in clock ticks since the system booted; 0 where there is none. Together with
/// the id, which the system may reuse, it identifies a process of a host uniquely.
int64_t start_of_process(int64_t process);

/// Continues (SIGCONT) a stopped rank of this host that the run has given up, so that it receives the verdict
/// and leaves by itself. A stopped process does not end by SIGTERM, and its launcher would wait long for it
/// (torchrun: 30 seconds). A process that runs, that a debugger holds, that belongs to another user or whose
/// id was reused is left as it is.
void wake_if_stopped(const RankIdentity& who);

}  // namespace adtrain
