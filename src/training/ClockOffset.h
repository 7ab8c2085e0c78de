#pragma once

#include <cstdint>

#include "collectives/Communicator.h"

namespace adtrain {

/// How this rank's clock compares with rank 0's.
struct ClockOffset {
  int64_t ahead_ns = 0;  ///< this rank's clock minus rank 0's
  int64_t root_ns = 0;   ///< rank 0's clock at one moment of the measurement, the same number on all ranks

  /// Measures it. Exact where ranks share a host and so its clock. Between hosts it is the median over some
  /// barriers of the difference with which ranks leave one: as exact as they leave it together, which takes
  /// about one message of the network. Collective.
  static ClockOffset measure(Communicator& communicator);
};

}  // namespace adtrain
