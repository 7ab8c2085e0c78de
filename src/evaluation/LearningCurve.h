#pragma once

#include <vector>

#include "environments/TaskFamily.h"
#include "evaluation/InContextEvaluation.h"

namespace adtrain {

/// How an episode's return grows in context, and its bounds.
struct LearningCurve {
  std::vector<double> mean;  ///< an episode's return: mean over tasks and repeats
  std::vector<double>
      std;  ///< its standard deviation over tasks, each the mean of its repeats (divisor: tasks)
  double last10_mean = 0;   ///< mean of the last ten episodes, or of all where there are fewer
  double random_floor = 0;  ///< expected return of uniformly random actions, mean over the tasks
  double oracle = 0;        ///< best possible return, mean over the tasks

  static LearningCurve of(const InContextReturns& measured, const TaskFamily& family);
  /// The same without the bounds, which take time to compute.
  static LearningCurve without_bounds(const InContextReturns& measured);
};

}  // namespace adtrain
