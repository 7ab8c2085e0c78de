#pragma once

#include <cstdint>

#include <c10/core/ScalarType.h>

#include "kernels/plan/KernelPlan.h"
#include "model/LossPositions.h"
#include "model/ModelOptions.h"

namespace adtrain {

/// The most bytes of a GPU's memory that a training step's forward and backward pass take at once, beside
/// parameters and their gradients, by arithmetic: for a micro-batch of `sequences` through a network with
/// these options over this shape, run by the kernels of `plan` in `type`. What a plug-in's network takes is
/// not known.
///
/// With options.recompute, what is computed again counts in the block whose backward pass runs, and not
/// before. The terms are what the blocks keep for their backward pass (BlockTensors.h, PreNormTensors.h, the
/// parts in PostNormSublayers.cpp and PreNormSublayers.cpp; with libtorch's operators what autograd saves),
/// and the temporaries of the block whose backward pass has the most around it. The first `forward_only`
/// blocks have no backward pass, as all before and in them is frozen; other frozen parameters change nothing.
int64_t activation_bytes(const ModelOptions& options, const ModelShape& shape,
                         const kernels::KernelPlan& plan, LossPositions positions, at::ScalarType type,
                         int64_t sequences, int64_t forward_only = 0);
/// The same of a forward pass without gradients whose loss reads the last position, as that of the held-out
/// loss.
int64_t inference_bytes(const ModelOptions& options, const ModelShape& shape, const kernels::KernelPlan& plan,
                        at::ScalarType type, int64_t sequences);

}  // namespace adtrain
