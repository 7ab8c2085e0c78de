#pragma once

#include <cstdint>

namespace adtrain {

struct Task;

/// A task of any family, as kernels read it.
struct GpuTask {
  uint64_t seed;  ///< of its random numbers
  int32_t start[2];
  int32_t goal[2];
  int32_t key[2];       ///< −1 where the family has none and the goal always pays
  int32_t moves[5][2];  ///< of each action, before clipping to the room
};

/// Where an agent is in its episode.
struct alignas(4) GpuAgent {
  uint8_t x, y, has_key, goal_open;
};

/// The agent at the start of an episode.
constexpr GpuAgent first_agent(const GpuTask& task) {
  const bool has_key = task.key[0] < 0;
  return {static_cast<uint8_t>(task.start[0]), static_cast<uint8_t>(task.start[1]),
          static_cast<uint8_t>(has_key ? 1 : 0), 1};
}

GpuTask gpu_task(const Task& task, uint64_t seed);

}  // namespace adtrain
