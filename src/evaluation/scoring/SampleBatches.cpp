#include "evaluation/scoring/SampleBatches.h"

#include <algorithm>
#include <bit>

#include "data/WindowFinder.h"

namespace adtrain {

SampleBatches::SampleBatches(int64_t windows, std::optional<int64_t> most_samples, int64_t batch)
    : windows_(windows),
      samples_(std::min(windows, most_samples.value_or(windows))),
      batch_(std::min(batch, samples_)) {}

int64_t SampleBatches::window(int64_t place) const {
  return spread(place, samples_, windows_);
}

NumberSpan SampleBatches::samples_in(const NumberSpan& batches) const {
  return {std::min(batches.first * batch_, samples_), std::min(batches.end * batch_, samples_)};
}

std::vector<int64_t> SampleBatches::windows_of(int64_t batch) const {
  const NumberSpan places = samples_in({batch, batch + 1});
  std::vector<int64_t> numbers;
  for (int64_t place = places.first; place < places.end; ++place) numbers.push_back(window(place));
  return numbers;
}

int64_t automatic_score_batch(int64_t samples, int64_t steps, bool on_gpu) {
  constexpr int64_t kLeastBatches = 32, kMostOnGpu = 256, kMostOnCpu = 16;
  constexpr int64_t kMostStepsOnCpu = 4096;  // each thread computes a batch, whose activations take memory
  const int64_t most = on_gpu ? kMostOnGpu : std::min(kMostOnCpu, kMostStepsOnCpu / steps);
  const int64_t share = std::max<int64_t>(1, std::min(most, samples / kLeastBatches));
  return static_cast<int64_t>(std::bit_floor(static_cast<uint64_t>(share)));
}

}  // namespace adtrain
