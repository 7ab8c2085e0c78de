#pragma once

#include <functional>

#include "data/Batch.h"
#include "model/AlgorithmDistillation.h"

namespace adtrain {

/// The model as a rollout calls it: maps a batch on the CPU, as AlgorithmDistillation::predict takes it, to
/// logits on the CPU.
using Predictor = std::function<AlgorithmDistillation::Predictions(const Batch&)>;

/// Calls `model`, whichever device its parameters are on. Borrows it.
Predictor predictor_of(AlgorithmDistillation& model);

}  // namespace adtrain
