#pragma once

#include "adtrain/communicator.h"
#include "distributed/Communicator.h"
#include "distributed/LaunchContext.h"

namespace adtrain {

/// What a ProcessGroup is made of; whoever makes one owns both.
struct ProcessGroup::Joined {
  const LaunchContext& context;
  Communicator& communicator;
};

}  // namespace adtrain
