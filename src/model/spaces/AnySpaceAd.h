#pragma once

#include <cstddef>
#include <vector>

#include "model/AlgorithmDistillation.h"
#include "model/ComposedStack.h"
#include "model/spaces/ActionHead.h"
#include "model/spaces/StepTokens.h"

namespace adtrain {

/// Algorithm Distillation over tasks of any space: one causal stream of StepTokens through blocks of chosen
/// pieces, every token of which is a query. It reads rows of any space (see Batch). Plain operators compute
/// it, but for what the plan says.
///
/// Of several groups of spaces each has encoders, learned first steps and a head of its own, as in Vintix;
/// the blocks are shared. Parameters of groups that have no row in a batch get no gradient from it.
class AnySpaceAd : public AlgorithmDistillation {
 public:
  /// shape.spaces must not be empty. Throws ConfigError where `options` do not fit them.
  static std::unique_ptr<AnySpaceAd> create(const ModelOptions& options, const ModelShape& shape,
                                            ParameterFactory factory);
  /// `options` are of_own_tasks and fit.
  AnySpaceAd(const ModelOptions& options, const ModelShape& shape, ParameterFactory factory);

  Loss loss(const Batch& batch, LossPositions positions, bool training) override;
  /// Of rows of one group alone: others' predictions have other shapes. Throws std::invalid_argument.
  Predictions forward(const Batch& batch, LossPositions positions, bool training) override;
  std::optional<Parts> parts() override;
  bool rolling_slides() const override { return stack_.slides(); }
  std::string why_not_rolling() const override { return ""; }

 private:
  /// What the blocks give at the queries of all rows: (B, Q, width).
  at::Tensor queries_of(const Batch& batch, LossPositions positions, bool training);
  NewestStep newest_step() const;
  const ActionHead& head_of(const Batch& rows) const { return heads_.at(static_cast<size_t>(rows.group)); }
  /// `x`: of these rows, which are of one group.
  Loss loss_of(const at::Tensor& x, const Batch& rows, LossPositions positions) const;
  /// Tells who sums gradients that none come for the groups that the batch lacks: it would wait for them
  /// until the end of the backward pass.
  void report_absent_groups(const Batch& batch);

  StepTokens tokens_;
  ComposedStack stack_;
  std::vector<ActionHead> heads_;                    ///< of each group
  std::vector<std::vector<size_t>> own_parameters_;  ///< of each group, where there are several: places
};

}  // namespace adtrain
