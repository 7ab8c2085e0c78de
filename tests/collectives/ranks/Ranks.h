#pragma once

#include "collectives/Communicator.h"
#include "launch/LaunchContext.h"

namespace adtrain {

/// The ranks that this program was started as. Every test is run by all of them, in the same order.
struct Ranks {
  LaunchContext context;
  Communicator* communicator = nullptr;
  at::Device device = at::kCPU;  ///< where the tests' tensors lie
};

Ranks& ranks();

}  // namespace adtrain
