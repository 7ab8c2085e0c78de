#pragma once

#include <sys/types.h>

#include "environments/worker/WorkerOptions.h"

namespace adtrain {

/// Starts env_python with the worker's script and env_worker, as the leader of a process group of its own,
/// with `socket` as file 3 and `output` as what it prints to. Returns 0, or an error number.
int start_worker(const WorkerOptions& options, int socket, int output, pid_t& process);

}  // namespace adtrain
