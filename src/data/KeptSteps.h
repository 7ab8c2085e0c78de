#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "data/formats/HistorySource.h"

namespace adtrain {

/// Which episodes of a history are used. A value.
struct EpisodeChoice {
  /// Shares of all episodes: of n episodes those from number ⌊from·n⌋ on, before number ⌊to·n⌋.
  double from = 0, to = 1;
  int64_t stride = 1;  ///< and of these the first, and every stride-th after it

  bool all() const { return from == 0 && to == 1 && stride == 1; }
};

/// The steps of one history that are trained on, in their order: all, or those of some episodes.
/// Cheap to copy. Immutable.
class KeptSteps {
 public:
  /// The first `steps` steps.
  explicit KeptSteps(int64_t steps) : size_(steps) {}
  /// Of the first `steps` steps those of the chosen episodes, by the data's own ends of episodes; what
  /// follows the last end counts as an episode. Reads the columns that tell these ends. Throws DataError
  /// where the history has none.
  static KeptSteps of_episodes(const EpisodeChoice& choice, const HistorySource& source, size_t task,
                               size_t history, int64_t steps);

  /// What to_bytes() has written.
  static KeptSteps from_bytes(const std::string& bytes);
  std::string to_bytes() const;

  int64_t size() const { return size_; }
  /// Whether episodes were left out: each run is then an episode.
  bool thinned() const { return runs_ != nullptr; }

  /// Consecutive steps of the history.
  struct Run {
    int64_t kept;   ///< number of its first step among the kept ones
    int64_t first;  ///< that step's place in the history
  };
  /// Null where all steps are kept.
  const std::vector<Run>* runs() const { return runs_.get(); }
  /// The run that holds the kept step `kept`, and where it ends among the kept steps.
  struct Place {
    Run run;
    int64_t end;
  };
  Place place_of(int64_t kept) const;
  /// The place in the history of a kept step.
  int64_t original(int64_t kept) const {
    const Run run = place_of(kept).run;
    return run.first + kept - run.kept;
  }

 private:
  int64_t size_;
  std::shared_ptr<const std::vector<Run>> runs_;  ///< null where all steps are kept
};

}  // namespace adtrain
