#pragma once

#include <cstdint>
#include <string>

#include "base/Error.h"
#include "distributed/Activity.h"

namespace adtrain {

/// A rank as an error report names it.
struct RankIdentity {
  int64_t rank = 0;
  int64_t world_size = 1;
  std::string host;
  int64_t process = 0;  ///< its id on that host
  int64_t started = 0;  ///< as start_of_process() tells it; 0 where it does not

  static RankIdentity of_this_process(int64_t rank, int64_t world_size);
};

/// How a run came to its end: the rank that failed first, and what is known about it.
struct Failure {
  RankIdentity who;
  Doing doing;
  ExitCode code = ExitCode::kUnexpected;  ///< kPeerLost where the rank could not say anything itself
  std::string error;                      ///< what was found
  std::string advice;                     ///< what to do

  /// This rank's own: the error that it ends with.
  static Failure of(const std::exception& error, const RankIdentity& who);
  /// Of a rank that cannot say anything itself. Its connection closed:
  static Failure gone(const RankIdentity& who, const Doing& doing);
  /// It is connected and says nothing:
  static Failure silent(const RankIdentity& who, const Doing& doing, double seconds);
  /// It is alive and does not come to where the others wait:
  static Failure elsewhere(const RankIdentity& who, const Doing& doing);

  /// The block that the output of every rank ends with.
  std::string block() const;
};

}  // namespace adtrain
