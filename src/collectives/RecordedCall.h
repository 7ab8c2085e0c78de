#pragma once

#include <ATen/record_function.h>

namespace adtrain {

/// Shows in a profile that the calling thread is in a collective operation while this object exists. Costs
/// nanoseconds where no profile is recorded.
class RecordedCall {
 public:
  /// How the names of all of them begin.
  static constexpr const char* kCommunication = "communication: ";
  /// The start of a sum over ranks that goes on while the thread computes, and the wait for all of these.
  static constexpr const char* kGradientsStart = "communication: start of gradients' all-reduce";
  static constexpr const char* kGradientsWait = "communication: gradients' all-reduce";

  explicit RecordedCall(const char* name) {
    if (function_.isActive()) function_.before(name);
  }

 private:
  at::RecordFunction function_{at::RecordScope::FUNCTION};
};

}  // namespace adtrain
