#pragma once

#include <cstdint>
#include <functional>

#include "data/Batch.h"
#include "model/AlgorithmDistillation.h"
#include "placement/PlacedNetwork.h"

namespace adtrain {

/// The model as a rollout calls it: maps a batch on the CPU, as AlgorithmDistillation::predict takes it, to
/// logits on the CPU.
using Predictor = std::function<AlgorithmDistillation::Predictions(const Batch&)>;

/// Calls `model`, whichever device its parameters are on. Borrows it.
Predictor predictor_of(AlgorithmDistillation& model);
/// Calls a network over several devices, with all rows at once or, for devices that work at once, in
/// `micro_batches` of them. Borrows it.
Predictor predictor_of(PlacedNetwork& network, int64_t micro_batches);
/// Calls `predict` with rows of this group of spaces (Batch::group); null where `predict` is.
Predictor of_group(const Predictor& predict, int64_t group);
/// Makes predictors of empty rows that grow by one step at a time (see AlgorithmDistillation::Rolling), each
/// for other rows. Borrows the model, which must be able to. `captures`: whether steps are captured in CUDA
/// graphs where they can be (see CapturedRolling).
std::function<Predictor()> rolling_predictors_of(AlgorithmDistillation& model, bool captures);

}  // namespace adtrain
