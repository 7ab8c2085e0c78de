#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <list>
#include <optional>
#include <string>
#include <vector>

#include "base/Clock.h"
#include "base/Error.h"
#include "launcher/PassedOnSignals.h"
#include "launcher/RankProcess.h"
#include "run/sweep/SweepRun.h"
#include "run/sweep/SweepSlots.h"
#include "telemetry/Console.h"

namespace adtrain {

/// How far a run of a sweep has come.
struct SweepProgress {
  enum class Status { kWaiting, kTraining, kEvaluating, kDone, kStopped, kFailed };
  Status status = Status::kWaiting;
  std::string failure;                   ///< why it failed
  ExitCode exit_code = ExitCode::kDone;  ///< of a run that failed
  double seconds = 0;                    ///< that this sweep spent on it
};
/// "waiting", "training", …
const char* name_of(SweepProgress::Status status);

/// Carries out the runs of a sweep, as many at once as there are slots: each is trained, then evaluated, by
/// processes of this program, whose output goes to `log_of` it. A run that fails harms no other. On INT,
/// TERM, HUP and USR1 the runs save and stop, and no other begins. To be constructed while the process has
/// one thread; for that thread.
class SweepRunner {
 public:
  struct Settings {
    std::filesystem::path logs;  ///< folder
    int64_t ranks = 1;           ///< of each run
  };
  SweepRunner(const std::vector<SweepRun>& runs, Settings settings, Console& console);

  /// Returns when all have ended. `changed` is called after each change of a run's status. Throws ConfigError
  /// before anything is started where a folder holds another run.
  void run(const SweepSlots& slots, const std::function<void()>& changed);

  const std::vector<SweepProgress>& progress() const { return progress_; }
  std::filesystem::path log_of(size_t run) const;

 private:
  /// A run that one of the slots carries out.
  struct Job {
    size_t run, slot;
    SweepRun::Stage stage;
    RankProcess process;
    Stopwatch since{};
  };
  void look_at_all();
  void begin_waiting();
  void start(size_t run, size_t slot, SweepRun::Stage stage);
  void answer(int signal);
  void pause_with_all() const;
  void take_ends();
  void end(const Job& job, const RankEnd& end);
  void fail(size_t run, const std::string& failure, ExitCode exit_code);
  void tell(size_t run, const std::string& what) const;

  const std::vector<SweepRun>& runs_;
  Settings settings_;
  Console& console_;
  PassedOnSignals signals_;
  SweepSlots slots_;
  std::function<void()> changed_;
  std::vector<SweepProgress> progress_;
  std::vector<SweepRun::Stage> stages_;  ///< at the beginning
  std::list<Job> jobs_;
  size_t next_ = 0;  ///< the first run that may still wait
  bool stopping_ = false;
};

}  // namespace adtrain
