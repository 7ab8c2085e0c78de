#pragma once

#include "adtrain/launch.h"
#include "distributed/LaunchContext.h"

namespace adtrain {

/// What a program is to know of the launch: not how the ranks meet.
LaunchInfo info_of(const LaunchContext& context);

}  // namespace adtrain
