#pragma once

#include <cstdint>

namespace adtrain {

/// Linear warm-up from 0 to `peak`, then half a cosine down to 0 at `total_steps`; counted in optimizer
/// steps, whatever the number of ranks and micro-batches (the rule of `get_cosine_schedule_with_warmup` in
/// Hugging Face's transformers).
class LearningRateSchedule {
 public:
  LearningRateSchedule(double peak, int64_t warmup_steps, int64_t total_steps)
      : peak_(peak), warmup_steps_(warmup_steps), total_steps_(total_steps) {}

  /// The rate of optimizer step `step`, 0 … total_steps − 1; 0 from total_steps on.
  double rate_at(int64_t step) const;

 private:
  double peak_;
  int64_t warmup_steps_;
  int64_t total_steps_;
};

}  // namespace adtrain
