#pragma once

#include "adtrain/communicator.h"

namespace adtrain {

/// The group that the tests of this program run in, all ranks the same ones in the same order.
ProcessGroup& group();

}  // namespace adtrain
