#pragma once

#include <map>
#include <optional>
#include <span>
#include <string>

namespace adtrain {

/// Returns of an episode of one task that others are measured by.
struct ReferenceScores {
  double random;  ///< of uniformly random actions
  double expert;  ///< of the algorithm, or the demonstrator, whose histories were learnt from

  /// From the attributes random-score and expert-score that a file has of a task
  /// (docs/history-formats.md). Nothing where it lacks one. Throws DataError where one is no finite number,
  /// and where both are equal; `origin` names file and task.
  static std::optional<ReferenceScores> from_attributes(const std::map<std::string, std::string>& attributes,
                                                        const std::string& origin);
  /// (score − random) ÷ (expert − random): 0 as good as random, 1 as the expert.
  double normalised(double score) const { return (score - random) / (expert - random); }
};

/// The mean of the middle half: of n scores, sorted, without the ⌊n ÷ 4⌋ lowest and as many highest.
/// rliable's definition (Agarwal et al. 2021), which is SciPy's trim_mean with a quarter. `scores`, one at
/// least, are of all tasks and repeats together.
double interquartile_mean(std::span<const double> scores);

}  // namespace adtrain
