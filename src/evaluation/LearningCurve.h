#pragma once

#include <optional>
#include <vector>

#include "environments/TaskFamily.h"
#include "evaluation/InContextEvaluation.h"
#include "evaluation/NormalizedScores.h"

namespace adtrain {

/// How an episode's return grows in context, and its bounds.
struct LearningCurve {
  std::vector<double> mean;  ///< an episode's return: mean over tasks and repeats
  std::vector<double>
      std;  ///< its standard deviation over tasks, each the mean of its repeats (divisor: tasks)
  double last10_mean = 0;  ///< mean of the last ten episodes, or of all where there are fewer
  // Mean over the tasks, where it is known.
  std::optional<double> random_floor;  ///< expected return of uniformly random actions
  std::optional<double> oracle;        ///< best possible return
  std::optional<NormalizedScores> scores;

  static LearningCurve of(const InContextReturns& measured, const TaskFamily& family);
  /// The same without the bounds, which take time to compute or are not known.
  static LearningCurve without_bounds(const InContextReturns& measured);
};

}  // namespace adtrain
