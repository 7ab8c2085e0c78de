#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/Clock.h"
#include "collectives/Communicator.h"
#include "telemetry/profile/EventRecorder.h"
#include "telemetry/profile/RankProfile.h"
#include "training/ClockOffset.h"
#include "training/ProfileOptions.h"
#include "training/TrainingLog.h"

namespace adtrain {

/// Profiles some steps of a run: each chosen rank records them, and rank 0 writes what all have recorded. It
/// changes nothing that training computes.
///
///     profiler.begin_step(step); …; profiler.end_step(step, leaving); …; profiler.write(leaving);
///
/// In the steps that are not profiled these calls do nothing. All are collective. For one thread.
class StepProfiler {
 public:
  /// Borrows communicator and log. Files are written into `folder`, `steps_FIRST-LAST` with the endings
  /// .txt, .json and .trace.json.gz. Throws ConfigError where a rank is chosen that the run does not have.
  StepProfiler(const ProfileOptions& options, Communicator& communicator, TrainingLog& log,
               std::filesystem::path folder);

  /// Before a step, counted from 1. Starts recording at the first profiled one, and prepares for it a step
  /// earlier.
  void begin_step(int64_t step);
  /// After it. Stops recording after the last profiled step, and where the run ends here (`leaving`), as far
  /// as is known by then.
  void end_step(int64_t step, bool leaving);
  /// Passes on and writes what was recorded, once, after recording has stopped, as it does here at the latest
  /// where the run ends. The events of ranks come one rank after the other, each with a deadline of its own.
  /// A disk that fails is a warning.
  void write(bool leaving);

 private:
  bool records_here() const;
  void start();
  /// Ends what mark() is of, and the recording with it.
  void stop(std::optional<int64_t> step);
  /// Ends a step, or what lies between two.
  void mark(std::optional<int64_t> step);
  /// This rank's profile, and its piece of the trace; empty for a rank that has recorded nothing.
  std::string own_part();
  void write_files(const std::vector<RankProfile>& ranks, const std::string& trace);

  std::optional<StepRange> range_;
  std::vector<int64_t> ranks_;
  Communicator& communicator_;
  TrainingLog& log_;
  std::filesystem::path folder_;
  bool recording_ = false, recorded_ = false;
  ClockOffset clock_;
  std::unique_ptr<EventRecorder> recorder_;  ///< of the chosen ranks, while they record
  ProfileEvents events_;
  std::vector<HostMark> marks_;
  Stopwatch wall_;
  double wall_seconds_ = 0;
};

}  // namespace adtrain
