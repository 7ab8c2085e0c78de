#pragma once

#include <cstdint>
#include <functional>

#include <ATen/core/Tensor.h>

#include "model/AlgorithmDistillation.h"
#include "model/RollingKeys.h"

namespace adtrain {

/// How a network computes the newest tokens of rows that grow by one step at a time. Without gradients.
struct NewestStep {
  /// Of tokens that are kept, and of the newest ones that no later step reads: see RollingPlaces.
  int64_t window, passing;
  /// The embedded tokens of a step's rows, without positions.
  std::function<AlgorithmDistillation::Tokens(const Batch& step)> tokens = nullptr;
  /// Adds positions to them (B, tokens, width); null where there are none to be added.
  std::function<at::Tensor(const at::Tensor& x, const RollingPlaces& places)> with_positions = nullptr;
  /// Blocks `first` … `end` − 1 of the newest tokens: returns as many.
  std::function<at::Tensor(const at::Tensor& x, int64_t first, int64_t end, RollingBlocks& kept)> through =
      nullptr;
  /// What the newest token predicts; null: as that of a window.
  std::function<AlgorithmDistillation::Predictions(const AlgorithmDistillation::Tokens& tokens)> head =
      nullptr;
};

/// `whole`, whose rows may also grow as `step` says.
AlgorithmDistillation::Parts with_rolling(AlgorithmDistillation::Parts whole, const NewestStep& step);

}  // namespace adtrain
