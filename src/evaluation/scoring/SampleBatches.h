#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "evaluation/scoring/ScoreShard.h"

namespace adtrain {

/// The batches in which windows are scored: which windows are chosen, and which of them go through the model
/// together. It depends on nothing but its arguments, not on ranks or shards, which get whole batches. Every
/// batch has equally many rows: so a forward pass is the same wherever it runs, and so are its bits.
/// A value.
class SampleBatches {
 public:
  /// Of windows 0 … `windows` − 1 at most `most_samples`, evenly spread, in batches of `batch`, or of all
  /// where there are fewer. All are at least 1.
  SampleBatches(int64_t windows, std::optional<int64_t> most_samples, int64_t batch);

  int64_t windows() const { return windows_; }
  int64_t samples() const { return samples_; }
  /// The number of the window that is sample `place` of samples(), ascending.
  int64_t window(int64_t place) const;

  int64_t batches() const { return (samples_ + batch_ - 1) / batch_; }
  int64_t rows() const { return batch_; }
  /// Places of the samples in these batches.
  NumberSpan samples_in(const NumberSpan& batches) const;
  /// The numbers of the windows in a batch: rows() of them, fewer in the last one.
  std::vector<int64_t> windows_of(int64_t batch) const;

 private:
  int64_t windows_, samples_, batch_;
};

/// The batch of score_batch: auto, of windows of `steps` steps. It is a function of its arguments alone.
int64_t automatic_score_batch(int64_t samples, int64_t steps, bool on_gpu);

}  // namespace adtrain
