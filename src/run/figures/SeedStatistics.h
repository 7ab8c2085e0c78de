#pragma once

#include <span>

namespace adtrain {

/// How uncertain a mean over seeds is said to be.
enum class Interval {
  kStandardError,  ///< the mean, and one standard error to each side
  kBootstrap,      ///< the mean's 95% interval over samples that are drawn from the seeds with replacement
  kNone
};

struct MeanOverSeeds {
  double mean = 0;
  double low = 0, high = 0;  ///< both the mean, where there is no interval or one seed
};

/// The standard error is s/√n with s² = Σ(x − mean)²/(n − 1). The bootstrap interval is between the 2.5% and
/// the 97.5% quantile of the means of 10 000 samples, always drawn alike. All are NaN where a value is, or
/// where there are none.
MeanOverSeeds mean_over_seeds(std::span<const double> values, Interval interval);

}  // namespace adtrain
