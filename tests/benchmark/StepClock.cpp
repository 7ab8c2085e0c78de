#include "benchmark/StepClock.h"

#include <algorithm>
#include <cmath>

namespace adtrain {

void StepClock::mark() {
  if (on_gpu_) {
    events_.emplace_back(cudaEventDefault).record();
  } else {
    readings_.push_back(watch_.seconds());
  }
}

std::vector<double> StepClock::milliseconds() const {
  std::vector<double> between;
  if (on_gpu_) events_.back().synchronize();
  for (size_t i = 1; i < events_.size(); ++i) {
    between.push_back(static_cast<double>(events_[i - 1].elapsed_time(events_[i])));
  }
  for (size_t i = 1; i < readings_.size(); ++i) between.push_back(1e3 * (readings_[i] - readings_[i - 1]));
  return between;
}

double quantile(std::vector<double> values, double share) {
  std::sort(values.begin(), values.end());
  const auto rank = static_cast<size_t>(std::ceil(share * static_cast<double>(values.size())));
  return values[std::max<size_t>(rank, 1) - 1];
}

}  // namespace adtrain
