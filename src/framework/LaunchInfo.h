#pragma once

#include "adtrain/launch.h"
#include "launch/LaunchContext.h"

namespace adtrain {

/// What a program sees of the launch: not how the ranks meet.
LaunchInfo info_of(const LaunchContext& context);

}  // namespace adtrain
