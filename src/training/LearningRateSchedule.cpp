#include "training/LearningRateSchedule.h"

#include <cmath>
#include <numbers>

namespace adtrain {

double LearningRateSchedule::rate_at(int64_t step) const {
  if (step < warmup_steps_) return peak_ * static_cast<double>(step) / static_cast<double>(warmup_steps_);
  if (step >= total_steps_) return 0.0;
  const double progress =
      static_cast<double>(step - warmup_steps_) / static_cast<double>(total_steps_ - warmup_steps_);
  return peak_ * 0.5 * (1.0 + std::cos(std::numbers::pi * progress));
}

}  // namespace adtrain
