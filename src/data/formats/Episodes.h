#pragma once

#include <cstdint>
#include <vector>

#include "data/formats/Column.h"

namespace adtrain {

/// A whole episode of a history.
struct Episode {
  int64_t last_step;  ///< its place in the history
  int64_t steps;
  double episode_return;  ///< the sum of its rewards
};

/// Finds the episodes of one history, whose windows it is given in order, one directly behind the other. An
/// episode ends where the first of these that the history has says so: the column of episode ends;
/// terminations or truncations; step numbers, where the next step is number 0. A last episode that does not
/// end in the history is none.
class EpisodeFinder {
 public:
  /// What `add` reads.
  static ColumnKinds columns();
  /// Whether a history with these columns says where its episodes end.
  static bool can_tell(const std::vector<ColumnType>& columns);

  /// Appends the episodes that end, as far as is known after this window. The window must have rewards.
  void add(const HistoryWindow& window, std::vector<Episode>& found);

 private:
  void finish(int64_t last_step, std::vector<Episode>& found);

  int64_t position_ = 0;  ///< of the next step
  int64_t steps_ = 0;     ///< of the open episode
  double return_ = 0;
};

}  // namespace adtrain
