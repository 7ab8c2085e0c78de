#pragma once

#include <cstdint>
#include <vector>

#include <ATen/core/Tensor.h>

#include "model/AlgorithmDistillation.h"
#include "model/Initialisation.h"
#include "model/spaces/SymbolicCells.h"

namespace adtrain {

/// Predicts actions of any space from what blocks give: by a linear layer, with vintix behind three linear
/// layers with LeakyReLU, as in Vintix (arXiv:2501.19400). Not thread-safe.
class ActionHead {
 public:
  /// Of a Gaussian head, the logarithm of a standard deviation is at most so far from 0: it is b · tanh(x /
  /// b) of what the last layer says, so nearly that itself where it is small.
  static constexpr double kLogDeviationBound = 5;

  ActionHead(ParameterFactory& factory, const ModelOptions& options, const TaskSpaces& spaces,
             const Initialisation& initial);

  /// x (B, Q, width) -> AlgorithmDistillation::Predictions::actions (B, Q, …).
  at::Tensor operator()(const at::Tensor& x) const;
  /// What the last layer reads of x, and that layer.
  at::Tensor hidden(const at::Tensor& x) const;
  const Linear& output() const { return out_; }
  /// Actions (B, T, …) that are one choice each, counted from 0: int32 (B, T).
  at::Tensor choices(const at::Tensor& actions) const;

  /// Of those predictions; `actions` (B, Q, …) of the space are the targets. `counts`: bool (B, Q), where
  /// they are; undefined: everywhere.
  AlgorithmDistillation::Loss loss(const at::Tensor& predictions, const at::Tensor& actions,
                                   double label_smoothing, const at::Tensor& counts = {}) const;

 private:
  /// Each element's cross-entropy, summed, and the targets all of whose elements are the most probable.
  AlgorithmDistillation::Loss cross_entropy(const at::Tensor& predictions, const at::Tensor& actions,
                                            double label_smoothing, const at::Tensor& counts) const;

  ActionHeadKind kind_;
  Space space_;
  CountedFromStart counted_;  ///< of no meaning for a Box
  std::vector<Linear> hidden_;
  Linear out_;
};

}  // namespace adtrain
