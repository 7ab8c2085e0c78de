#pragma once

#include <cstdint>
#include <string>

#include "data/History.h"
#include "environments/TaskFamily.h"

namespace adtrain {

/// Lives a task's history again: from the start of the first episode on, its actions lead through an
/// environment of the task, which says every state, reward and end of an episode. The next state at an
/// episode's end may be the state after the reset or the last observation. Throws DataError at the first step
/// that contradicts, naming `file`, task, stream and step, what was found and what was expected. Values must
/// lie within the family's bounds.
void check_by_replay(const std::string& file, int64_t task, const History& history, const TaskFamily& family);

}  // namespace adtrain
