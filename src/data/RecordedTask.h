#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "data/formats/Column.h"

namespace adtrain {

/// The learning histories of one task of any space, as version 2 of our files has them
/// (docs/history-formats.md): `streams` histories of `steps` steps. A value.
struct RecordedTask {
  int64_t streams = 0;
  int64_t steps = 0;
  /// The bytes of each are (streams, steps) rows. One of a kind at most; observations, actions and rewards
  /// are among them.
  std::vector<Column> columns;
  std::map<std::string, std::string> texts;  ///< attributes of the task's group: its name, …
  std::map<std::string, double> scores;      ///< and numbers: "random-score", "expert-score"
};

}  // namespace adtrain
