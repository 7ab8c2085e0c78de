#pragma once

#include <ATen/core/Tensor.h>

#include "distributed/Communicator.h"

namespace adtrain {

/// Gives every rank rank 0's content of a tensor of any type and layout, in place. Collective.
void broadcast_bytes(Communicator& communicator, const at::Tensor& tensor);

}  // namespace adtrain
