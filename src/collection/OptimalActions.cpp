#include "collection/OptimalActions.h"

#include <algorithm>

namespace adtrain {
namespace {

int32_t sign(int32_t value) {
  return static_cast<int32_t>(value > 0) - static_cast<int32_t>(value < 0);
}

/// The action of this task that moves from one cell towards another.
int32_t action_towards(const Task& task, Cell from, Cell to) {
  Cell move{sign(to.x - from.x), 0};
  if (move.x == 0) move.y = sign(to.y - from.y);
  return static_cast<int32_t>(std::ranges::find(task.moves, move) - task.moves.begin());
}

}  // namespace

std::vector<int32_t> optimal_actions(const Task& task, const History& history) {
  std::vector<int32_t> actions;
  actions.reserve(history.actions.size());
  for (int64_t stream = 0; stream < history.streams; ++stream) {
    float earned = 0;  // in this episode: with a key 0, 1 after it, and 2 after the goal
    for (int64_t step = 0; step < history.steps; ++step) {
      const size_t i = history.at(step, stream);
      const Cell cell{history.states[2 * i], history.states[2 * i + 1]};
      const Cell to = !task.key || earned == 1 ? task.goal : earned == 0 ? *task.key : cell;
      actions.push_back(action_towards(task, cell, to));
      earned = history.dones[i] != 0 ? 0 : earned + history.rewards[i];
    }
  }
  return actions;
}

}  // namespace adtrain
