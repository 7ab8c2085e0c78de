#pragma once

#include <gtest/gtest.h>

#include "model/RandomBatch.h"

namespace adtrain::testing {

/// The loss at all positions, and its gradients, are the sums of those at the last position of every prefix
/// of a plain batch.
inline void expect_sums_over_prefixes(AlgorithmDistillation& model, const Batch& batch) {
  const at::Tensor loss = model.loss(batch, LossPositions::kAll, false).sum;
  const at::Tensor all = flat_gradient(model, loss);
  at::Tensor sum = at::zeros_like(all), losses = at::zeros_like(loss);
  for (int64_t i = 1; i <= batch.actions.size(1); ++i) {
    const at::Tensor alone = model.loss(prefix(batch, i), LossPositions::kLast, false).sum;
    sum += flat_gradient(model, alone);
    losses += alone.detach();
  }
  EXPECT_LT(relative_error(loss.detach(), losses), 1e-6);
  EXPECT_LT(relative_error(all, sum), 1e-5);
}

}  // namespace adtrain::testing
