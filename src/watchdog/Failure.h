#pragma once

#include <cstdint>
#include <string>

#include "base/Error.h"
#include "watchdog/Activity.h"

namespace adtrain {

/// A rank as an error report names it.
struct RankIdentity {
  /// As `rank`: none can be told from the others.
  static constexpr int64_t kNobody = -1;

  int64_t rank = 0;
  int64_t world_size = 1;
  std::string host;
  int64_t process = 0;  ///< its id on that host
  int64_t started = 0;  ///< start_of_process() of it; 0 where that is unknown

  static RankIdentity of_this_process(int64_t rank, int64_t world_size);
};

/// Why a run failed: the rank that failed first, and what is known about it. Where no rank can be told from
/// the others, `who` is nobody and `error` says what all of them did.
struct Failure {
  RankIdentity who;
  ActivityStatus doing;
  ExitCode code = ExitCode::kUnexpected;  ///< kPeerLost where the rank could not report anything itself
  std::string error;                      ///< what was found
  std::string advice;                     ///< what to do

  /// This rank's own failure: the error that it ends with.
  static Failure of(const std::exception& error, const RankIdentity& who);
  /// The failure of a rank that reported nothing: its connection closed.
  static Failure gone(const RankIdentity& who, const ActivityStatus& doing);
  /// The same for a rank that is connected and silent for `seconds`.
  static Failure silent(const RankIdentity& who, const ActivityStatus& doing, double seconds);
  /// The same for a rank that is alive and does not reach the operation in which the others wait.
  static Failure elsewhere(const RankIdentity& who, const ActivityStatus& doing);

  /// The block that the output of every rank ends with.
  std::string block() const;
};

}  // namespace adtrain
