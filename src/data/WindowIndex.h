#pragma once

#include <cstdint>

namespace adtrain {

/// How histories are cut into samples.
struct WindowShape {
  int64_t steps;               ///< length of each history
  int64_t horizon;             ///< steps of an episode
  int64_t episode_stride = 1;  ///< keep every k-th episode
  int64_t length = 0;          ///< plain rows: transitions of a window (n_transit)
  int64_t region = 0;  ///< compressed rows: transitions of a region (compress_interval); 0 for plain rows
  bool whole_regions_only =
      false;  ///< compressed rows: a sample is a whole region, not one query (loss at all positions)
};

/// One sample: the position of its window.
struct Window {
  int64_t history;
  int64_t phase;  ///< which of the episode_stride interleaved sub-histories
  int64_t
      start;  ///< first step of the window (plain) or of the query's region (compressed), in the sub-history
  int64_t current;  ///< compressed: transitions of the query's region that precede the query (0 … region)
};

/// Numbers the samples of a set of histories, 0 … size() − 1, without a table of them.
///
/// Sub-sampling (episode_stride k > 1) splits a history into k sub-histories, phases 0 … k−1, which hold
/// episodes phase, phase + k, phase + 2k, …; a window never mixes phases. Within a sub-history of L steps
/// - a plain window starts at any of L − length + 1 steps;
/// - a compressed sample is a query: each full region has region + 1 of them (its actions, then its end), a
/// rest at the
///   end of the sub-history only those of its actions.
/// Immutable; thread-safe. Works in CUDA kernels too.
class WindowIndex {
 public:
  /// Throws DataError where the histories are too short for a single sample, and says which settings decide.
  WindowIndex(int64_t histories, const WindowShape& shape);

  constexpr int64_t size() const { return histories_ * samples_a_history_; }

  constexpr Window window(int64_t sample) const {
    Window window{};
    window.history = sample / samples_a_history_;
    int64_t rest = sample % samples_a_history_;
    while (rest >= samples_in(window.phase)) rest -= samples_in(window.phase++);
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

  /// The step of the original history that is step `offset` of sub-history `phase`.
  constexpr int64_t original_step(int64_t phase, int64_t offset) const {
    if (shape_.episode_stride == 1) return offset;
    return (offset / shape_.horizon * shape_.episode_stride + phase) * shape_.horizon +
           offset % shape_.horizon;
  }

  /// Steps of sub-history `phase`.
  constexpr int64_t sub_history_steps(int64_t phase) const {
    if (shape_.episode_stride == 1) return shape_.steps;
    const int64_t episodes = shape_.steps / shape_.horizon;
    const int64_t kept = (episodes - phase + shape_.episode_stride - 1) / shape_.episode_stride;
    return (kept > 0 ? kept : 0) * shape_.horizon;
  }

  /// Samples of a history in sub-history `phase`.
  constexpr int64_t samples_in(int64_t phase) const {
    const int64_t steps = sub_history_steps(phase);
    if (shape_.region == 0) return steps < shape_.length ? 0 : steps - shape_.length + 1;
    const int64_t full_regions = steps / shape_.region;
    if (shape_.whole_regions_only) return full_regions;
    return full_regions * (shape_.region + 1) + steps % shape_.region;
  }

  constexpr const WindowShape& shape() const { return shape_; }

 private:
  int64_t histories_;
  WindowShape shape_;
  int64_t samples_a_history_ = 0;
};

}  // namespace adtrain
