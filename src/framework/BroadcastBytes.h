#pragma once

#include <ATen/core/Tensor.h>

#include "collectives/Communicator.h"

namespace adtrain {

/// Broadcasts rank 0's content of a tensor of any type and layout, in place. Collective.
void broadcast_bytes(Communicator& communicator, const at::Tensor& tensor);

}  // namespace adtrain
