#pragma once

#include <cstddef>
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

  /// The places of the columns of `sized`.
  enum Place : size_t { kObservations, kActions, kRewards, kTerminations, kTruncations };
  /// Room for so many steps, with zeros in it: observations and actions in the types of their rows (whose
  /// kinds are set here), rewards as float32, and terminations and truncations.
  static RecordedTask sized(ColumnType observations, ColumnType actions, int64_t streams, int64_t steps);
  /// Where the row of a step of a stream begins.
  uint8_t* row(Place column, int64_t stream, int64_t step);
};

}  // namespace adtrain
