#pragma once

#include <cstdint>

#include "environments/GpuTask.h"

namespace adtrain {

/// The room of one task, as environments/EnvironmentBatch.h has it for many.
struct GpuGridWorld {
  const GpuTask& task;
  int grid_size;

  __device__ int state_of(const GpuAgent& agent) const { return agent.x * grid_size + agent.y; }

  /// Moves the agent; returns the reward.
  __device__ int step(GpuAgent& agent, int action) const {
    const int x = min(max(agent.x + task.moves[action][0], 0), grid_size - 1);
    const int y = min(max(agent.y + task.moves[action][1], 0), grid_size - 1);
    const bool on_goal = x == task.goal[0] && y == task.goal[1];
    const bool on_key = x == task.key[0] && y == task.key[1];
    const bool reached = on_goal && agent.has_key != 0 && agent.goal_open != 0;
    const bool found = on_key && agent.has_key == 0;
    const bool closes = reached && task.key[0] >= 0;
    agent = {static_cast<uint8_t>(x), static_cast<uint8_t>(y),
             static_cast<uint8_t>(found ? 1 : agent.has_key),
             static_cast<uint8_t>(closes ? 0 : agent.goal_open)};
    return (reached ? 1 : 0) + (found ? 1 : 0);
  }
};

}  // namespace adtrain
