#include "environments/GpuTask.h"

#include "environments/TaskFamily.h"

namespace adtrain {

GpuTask gpu_task(const Task& task, uint64_t seed) {
  const Cell key = task.key.value_or(Cell{-1, -1});
  GpuTask flat{.seed = seed,
               .start = {task.start.x, task.start.y},
               .goal = {task.goal.x, task.goal.y},
               .key = {key.x, key.y},
               .moves = {}};
  for (size_t action = 0; action < kActions; ++action) {
    flat.moves[action][0] = task.moves[action].x;
    flat.moves[action][1] = task.moves[action].y;
  }
  return flat;
}

}  // namespace adtrain
