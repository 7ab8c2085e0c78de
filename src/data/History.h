#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

namespace adtrain {

/// The learning histories of one task: `streams` copies of it, `steps` transitions each. Every array is
/// time-major, as in the file: entry (t, s) is at t · streams + s, and pairs at twice that.
struct History {
  int64_t steps = 0;
  int64_t streams = 0;
  std::vector<int32_t> states;       ///< (steps, streams, 2)
  std::vector<int32_t> actions;      ///< (steps, streams)
  std::vector<float> rewards;        ///< (steps, streams)
  std::vector<int32_t> next_states;  ///< (steps, streams, 2)
  std::vector<uint8_t> dones;        ///< (steps, streams), 1 on the last step of an episode
  std::vector<int32_t>
      compress_markers;  ///< (steps, streams): 1, 2 on a rollout's first, last step; empty without them

  size_t at(int64_t step, int64_t stream) const { return static_cast<size_t>(step * streams + stream); }

  /// Drops all streams but the first `count`.
  void keep_streams(int64_t count);

  /// The streams of all `parts`, which have equal steps and streams, in turn: the first of each, then the
  /// second of each, and so on. There must be one part at least.
  static History interleaved(const std::vector<History>& parts);

  /// Whether next_states at an episode's end hold the state after the reset, as in the Python projects'
  /// files, rather than the last observation: true if no episode's end contradicts it.
  bool next_states_are_reset() const;
  /// Mean over streams of the return of the last whole episode; of everything where no episode ends.
  double final_return() const;
  /// The same of the episodes at its end, as LateReturns has it.
  double late_return() const;
};

}  // namespace adtrain
