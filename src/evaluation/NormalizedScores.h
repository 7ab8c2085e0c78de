#pragma once

#include <map>
#include <optional>
#include <string>
#include <vector>

#include "evaluation/InContextEvaluation.h"
#include "evaluation/TaskScores.h"

namespace adtrain {

/// The interquartile mean of some numbers, one at least: the mean of those that are left where the smallest
/// and the largest quarter of them, rounded down, are taken away. rliable's aggregate_iqm (arXiv:2108.13264).
double interquartile_mean(std::vector<double> numbers);

/// Returns on a scale of each task on which a random policy has 0 and an expert 1: (return − random) /
/// (expert − random).
struct NormalizedScores {
  /// Of some tasks, and all of their repeats.
  struct Curve {
    int64_t tasks = 0;
    std::vector<double> mean, iqm;  ///< of each episode: over tasks and repeats
    double last10_mean = 0;         ///< of the last ten episodes, or of all where there are fewer
    double last10_iqm = 0;          ///< over tasks and repeats, of which each is the mean of these episodes
  };
  Curve all;
  std::map<std::string, Curve> groups;  ///< where scores name several groups
  std::vector<int64_t> without_scores;  ///< tasks that lack one of both scores, or whose expert is no better

  /// `scores`: of each measured task. Nothing where none is a scale.
  static std::optional<NormalizedScores> of(const InContextReturns& measured,
                                            const std::vector<TaskScore>& scores);
};

}  // namespace adtrain
