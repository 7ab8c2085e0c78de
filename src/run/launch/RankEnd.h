#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace adtrain {

/// How one of the ranks that `adtrain launch` started has ended.
struct RankEnd {
  int64_t rank = 0;
  int exit_code = 0;    ///< 128 + n where signal n ended it
  int signal = 0;       ///< the signal that ended it, 0 for none
  bool asked = false;   ///< the launcher had told it to end, because another rank had failed
  bool killed = false;  ///< and had to kill it, because it did not

  /// `wait_status` is what waitpid() reports.
  static RankEnd of(int64_t rank, int wait_status);

  /// Neither done nor stopped on request behind a checkpoint.
  bool failed() const;
  /// "exit code 4 (histories missing or malformed)", "SIGKILL (signal 9: Killed)".
  std::string text() const;
};

/// The rank to look at first, out of the ends in the order in which they were seen; null where none failed.
/// A rank that lost a peer is not the cause where any other can be, nor is one that ended as the launcher
/// told it to. Where all failures are such consequences, the cause is a rank that left before them, be it
/// with exit code 0, or one that hung until it was killed.
const RankEnd* cause_of_failure(const std::vector<RankEnd>& ends);

/// "SIGTERM" for 15.
std::string signal_name(int signal);

}  // namespace adtrain
