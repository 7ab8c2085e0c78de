#pragma once

#include <optional>
#include <vector>

#include <c10/core/Device.h>

#include "evaluation/scoring/Scoring.h"
#include "framework/Ranks.h"
#include "run/throughput/ScoringSpeed.h"
#include "telemetry/Console.h"

namespace adtrain {

/// How long a measurement of so many seconds warms up: a quarter of them, at most five seconds.
double warm_up_seconds(double seconds);

/// A scoring whose scores nobody wants, but how fast they come.
struct MeasuredScoring {
  const Scoring& scoring;
  NumberSpan batches;
  const Ranks& ranks;
  std::vector<c10::Device> gpus;  ///< that this rank computes on; none: the CPU

  /// Scores for warm_up_seconds first, which does not count: kernels are loaded and chosen, memory is
  /// allocated, caches fill. Waits for the start line, if there is one. Then scores all batches for
  /// `seconds`, as often as they last, and lets those that have begun end. Batch and precision are the
  /// caller's to add. Collective. Nothing where a signal asked to stop.
  std::optional<ScoringSpeed> speed(double seconds, Console& console) const;

 private:
  /// The samples of all ranks in that time; nothing where a signal asked to stop.
  std::optional<int64_t> samples_in(double seconds, const Scoring::Progress& progress) const;
};

}  // namespace adtrain
