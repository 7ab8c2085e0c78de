#pragma once

#include <cstdint>
#include <functional>

#include "data/Batch.h"
#include "evaluation/EvaluationOptions.h"
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
/// How the contexts of a rollout keep keys and values.
struct RollingPredictors {
  /// Makes a predictor of empty rows that grow by one step at a time, whose batches are those of
  /// AlgorithmDistillation::Rolling; each is for other rows. Null where none are kept.
  std::function<Predictor()> begin;
  /// Whether rows grow for ever. Else those that are longer than the window are shown as a whole at each
  /// step: the predictor is for n_transit steps alone.
  bool slides = false;

  explicit operator bool() const { return begin != nullptr; }
  /// The same with rows of this group of spaces (Batch::group).
  RollingPredictors of_group(int64_t group) const;
};

/// Of this model, which is borrowed; none where it keeps no keys. `captures`: whether steps are captured in
/// CUDA graphs where they can be (see CapturedRolling). With kRolling rows grow beyond the window where the
/// model can. With kRecompute they do not, so that all predictions are those of predict(); none on CPUs,
/// where they are then those of predict() bit for bit.
RollingPredictors rolling_predictors_of(AlgorithmDistillation& model, EvaluationContext context,
                                        bool captures);
/// The same of such a model's network over several devices with kRolling, each of which keeps the keys and
/// values of its blocks. A step goes through it as a whole, and eagerly. Borrows both.
RollingPredictors rolling_predictors_of(PlacedNetwork& network, const AlgorithmDistillation& model);

}  // namespace adtrain
