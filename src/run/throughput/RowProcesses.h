#pragma once

#include <filesystem>
#include <list>
#include <string>
#include <vector>

#include "base/Error.h"
#include "launcher/PassedOnSignals.h"
#include "launcher/RankProcess.h"
#include "run/throughput/PeerProgram.h"
#include "run/throughput/ScoringSpeed.h"
#include "run/throughput/StartLine.h"
#include "run/throughput/ThroughputRows.h"

namespace adtrain {

/// Measures rows of a throughput table by processes of this program, each row by its own: what one leaves in
/// memory slows no other, and what ends one ends no other. INT, TERM, HUP and USR1 end the row. To be
/// constructed while the process has one thread; for that thread.
class RowProcesses {
 public:
  struct Settings {
    std::vector<std::string> scored;  ///< the arguments of `adtrain score` that all of its rows have
    PeerProgram peers;                ///< measures the others
    double seconds = 5;               ///< of each measurement
    std::filesystem::path folder;     ///< gets logs/KEY….log, and what is removed after each row
  };
  explicit RowProcesses(Settings settings) : settings_(std::move(settings)) {}

  /// How a row ended: how fast its processes were, or why it did not get measured.
  struct End {
    std::vector<ScoringSpeed> speeds = {};  ///< of its processes; empty where one failed
    std::string because = {};
    ExitCode code = ExitCode::kDone;
    bool is_missing = false;  ///< what it runs is not on this machine, which is no failure
  };
  End measure(const ThroughputRow& row);
  /// Whether a signal asked to end.
  bool stopping() const { return stopping_; }

 private:
  struct Started {
    int64_t number;
    std::filesystem::path log;
    RankProcess process;
  };
  std::filesystem::path work() const { return settings_.folder / "work"; }
  Started started(const ThroughputRow& row, int64_t number, const StartLine& line) const;
  /// Says in `plan` how a process of this program scores.
  void score(const ThroughputRow& row, int64_t number, const std::string& name,
             RankProcess::Plan& plan) const;
  /// What came of a row one of whose processes has left with an error.
  End failed(const ThroughputRow& row, const RankEnd& left, const std::filesystem::path& log) const;
  void answer(int signal, const std::list<Started>& running);
  std::vector<ScoringSpeed> speeds(const ThroughputRow& row) const;

  Settings settings_;
  PassedOnSignals signals_;
  bool stopping_ = false;
};

/// What a command that failed said in its log: the error of its last failure's block, or the last line that
/// begins with "adtrain: " and those that follow it. Empty where there is none.
std::string error_in_log(const std::string& text);

}  // namespace adtrain
