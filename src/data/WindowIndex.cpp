#include "data/WindowIndex.h"

#include <fmt/format.h>

#include "base/Error.h"

namespace adtrain {

WindowIndex::WindowIndex(int64_t histories, const WindowShape& shape) : histories_(histories), shape_(shape) {
  for (int64_t phase = 0; phase < shape_.episode_stride; ++phase) samples_a_history_ += samples_in(phase);
  if (size() > 0) return;
  throw DataError(fmt::format(
      "no samples: a history of {} steps{} leaves {} steps, shorter than {} of {} transitions; use longer "
      "histories (train_source_timesteps, total_source_timesteps){}, or a smaller {}",
      shape_.steps,
      shape_.episode_stride > 1 ? fmt::format(" with every {}. episode kept", shape_.episode_stride) : "",
      sub_history_steps(0), shape_.region > 0 ? "a region" : "a window",
      shape_.region > 0 ? shape_.region : shape_.length,
      shape_.episode_stride > 1 ? ", a smaller episode_stride" : "",
      shape_.region > 0 ? "compress_interval" : "n_transit"));
}

}  // namespace adtrain
