#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace adtrain {

/// How a rank that `adtrain launch` started has ended.
struct RankEnd {
  int64_t rank = 0;
  int exit_code = 0;    ///< 128 + n where signal n ended it
  int signal = 0;       ///< the signal that ended it, 0 for none
  bool asked = false;   ///< the launcher asked it to end, because another rank had failed
  bool killed = false;  ///< the launcher then killed it, because it had not ended

  /// `wait_status` is what waitpid() reports.
  static RankEnd of(int64_t rank, int wait_status);

  /// True unless it is done or stopped on request after a checkpoint.
  bool failed() const;
  /// "exit code 4 (histories missing or malformed)", "SIGKILL (signal 9: Killed)".
  std::string text() const;
};

/// The rank to look at first; null where none failed. `ends` are in the order in which they were seen. A rank
/// that lost a peer is not the cause where any other can be; nor is one that ended because the launcher asked
/// it to. Where all failures are such consequences, the cause is a rank that left before them, even with exit
/// code 0, or one that hung until it was killed.
const RankEnd* cause_of_failure(const std::vector<RankEnd>& ends);

/// "SIGTERM" for 15.
std::string signal_name(int signal);

}  // namespace adtrain
