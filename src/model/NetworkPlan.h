#pragma once

#include "kernels/plan/KernelPlan.h"
#include "model/LossPositions.h"
#include "model/ModelOptions.h"

namespace adtrain {

/// Which kernels run a network with these options on such a device, computing in `type`, where the loss reads
/// these positions. `quantised`: whether linear layers have quantised weights.
kernels::KernelPlan plan_of(const ModelOptions& options, const ModelShape& shape, LossPositions positions,
                            const kernels::DeviceTraits& device, at::ScalarType type, bool quantised = false);

}  // namespace adtrain
