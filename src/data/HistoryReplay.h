#pragma once

#include <cstdint>
#include <string>

#include "data/History.h"
#include "environments/TaskFamily.h"

namespace adtrain {

/// Replays a task's history: from the start of the first episode on, its actions step an environment of the
/// task, which determines every state, reward and end of an episode. The next state at an episode's end may
/// be the state after the reset or the last observation. Throws DataError at the first step that differs,
/// naming `file`, task, stream and step, what was found and what was expected. Values must lie within the
/// family's bounds.
void check_by_replay(const std::string& file, int64_t task, const History& history, const TaskFamily& family);

}  // namespace adtrain
