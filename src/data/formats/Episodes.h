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

/// Where episodes end and begin by the columns of some steps: the first of these that they have says so. The
/// column of episode ends; terminations or truncations; step numbers, of which 0 is an episode's first step.
/// Borrows the columns.
class EpisodeEnds {
 public:
  explicit EpisodeEnds(const HistoryWindow& steps);

  /// Whether an episode ends on this step. Not known where step numbers say it.
  bool ends(int64_t step) const {
    return (end_ != nullptr && end_->number(step) != 0) || (cut_ != nullptr && cut_->number(step) != 0);
  }
  /// Whether the step's number says that an episode begins on it.
  bool begins(int64_t step) const { return numbers_ != nullptr && numbers_->number(step) == 0; }

 private:
  const Column *end_, *cut_ = nullptr, *numbers_ = nullptr;
};

/// Finds the episodes of one history, whose windows it is given in order, one directly behind the other. An
/// episode ends as EpisodeEnds says, or before the next one's first step. A last episode that does not end in
/// the history is none.
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
