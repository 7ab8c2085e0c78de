#pragma once

#include "adtrain/communicator.h"
#include "collectives/Communicator.h"
#include "launch/LaunchContext.h"

namespace adtrain {

/// What a ProcessGroup consists of; its creator owns both.
struct ProcessGroup::Joined {
  const LaunchContext& context;
  Communicator& communicator;
};

}  // namespace adtrain
