#include "data/WindowIndex.h"

#include <algorithm>

#include <fmt/format.h>

#include "base/Error.h"

namespace adtrain {

WindowIndex::WindowIndex(int64_t histories, const WindowShape& shape) : histories_(histories), shape_(shape) {
  for (int64_t phase = 0; phase < shape_.episode_stride; ++phase) {
    first_sample_of_phase_.push_back(samples_a_history_);
    samples_a_history_ += samples_in(phase);
  }
  first_sample_of_phase_.push_back(samples_a_history_);
  if (size() > 0) return;
  throw DataError(fmt::format(
      "no samples: a history of {} steps{} leaves {} steps, shorter than {} of {} transitions; use longer "
      "histories "
      "(train_source_timesteps, total_source_timesteps){}, or a smaller {}",
      shape_.steps,
      shape_.episode_stride > 1 ? fmt::format(" with every {}. episode kept", shape_.episode_stride) : "",
      sub_history_steps(0), shape_.region > 0 ? "a region" : "a window",
      shape_.region > 0 ? shape_.region : shape_.length,
      shape_.episode_stride > 1 ? ", a smaller episode_stride" : "",
      shape_.region > 0 ? "compress_interval" : "n_transit"));
}

int64_t WindowIndex::sub_history_steps(int64_t phase) const {
  if (shape_.episode_stride == 1) return shape_.steps;
  const int64_t episodes = shape_.steps / shape_.horizon;
  const int64_t kept = (episodes - phase + shape_.episode_stride - 1) / shape_.episode_stride;
  return std::max<int64_t>(0, kept) * shape_.horizon;
}

int64_t WindowIndex::samples_in(int64_t phase) const {
  const int64_t steps = sub_history_steps(phase);
  if (shape_.region == 0) return std::max<int64_t>(0, steps - shape_.length + 1);
  const int64_t full_regions = steps / shape_.region;
  if (shape_.whole_regions_only) return full_regions;
  return full_regions * (shape_.region + 1) + steps % shape_.region;
}

Window WindowIndex::window(int64_t sample) const {
  Window window{};
  window.history = sample / samples_a_history_;
  int64_t rest = sample % samples_a_history_;
  const auto next_phase =
      std::upper_bound(first_sample_of_phase_.begin(), first_sample_of_phase_.end(), rest);
  window.phase = next_phase - first_sample_of_phase_.begin() - 1;
  rest -= first_sample_of_phase_[static_cast<size_t>(window.phase)];
  if (shape_.region == 0) {
    window.start = rest;
  } else if (shape_.whole_regions_only) {
    window.start = rest * shape_.region;
    window.current = shape_.region;
  } else {
    window.start = rest / (shape_.region + 1) * shape_.region;
    window.current = rest % (shape_.region + 1);
  }
  return window;
}

}  // namespace adtrain
