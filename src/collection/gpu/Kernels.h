#pragma once

#include "collection/gpu/GpuProblem.h"
#include "collection/gpu/TaskMemory.h"

namespace adtrain::gpu {

/// Shared memory of one thread block in bytes; not every GPU has as much.
int update_shared_bytes();

/// Starts a round of updates of all tasks from their samples: epochs × minibatches steps of the optimizer.
void launch_update(const GpuProblem& problem, const TaskMemory& memory, int tasks, int64_t round);

/// Starts the rollout `number` of all tasks: sets samples, steps the agents and writes the histories.
void launch_rollout(const GpuProblem& problem, const TaskMemory& memory, int tasks, int64_t number);

}  // namespace adtrain::gpu
