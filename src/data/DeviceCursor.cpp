#include "data/DeviceCursor.h"

#include <ATen/ATen.h>

namespace adtrain {

DeviceCursor::DeviceCursor(const BatchSource::Feed& feed, at::Device device)
    : share_(feed.share),
      samples_(at::full({1}, feed.first_sample, at::TensorOptions(device).dtype(at::kLong))) {}

void DeviceCursor::advance() {
  if (++micro_step_ < share_.accumulation) return;
  micro_step_ = 0;
  samples_.add_(share_.global_batch());
}

}  // namespace adtrain
