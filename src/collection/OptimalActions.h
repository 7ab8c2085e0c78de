#pragma once

#include <cstdint>
#include <vector>

#include "data/History.h"
#include "environments/TaskFamily.h"

namespace adtrain {

/// The best action in every state of a task's history, (streams, steps): the agent goes to the goal, or to
/// the key first where there is one that has not paid in this episode, along x and then along y, and stays on
/// the goal. Where nothing pays any more it stays.
std::vector<int32_t> optimal_actions(const Task& task, const History& history);

}  // namespace adtrain
