#pragma once

#include <functional>

#include "data/Batch.h"
#include "model/AlgorithmDistillation.h"

namespace adtrain {

/// What a rollout asks: from a batch on the CPU, as AlgorithmDistillation::predict takes it, to logits on the
/// CPU.
using Predictor = std::function<AlgorithmDistillation::Predictions(const Batch&)>;

/// Asks `model`, wherever its parameters are. Borrows it.
Predictor predictor_of(AlgorithmDistillation& model);

}  // namespace adtrain
