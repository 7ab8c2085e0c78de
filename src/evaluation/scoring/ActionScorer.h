#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include <ATen/core/Tensor.h>

#include "data/Batch.h"
#include "model/ModelOptions.h"

namespace adtrain {

/// What a model's prediction says of the action that was taken.
struct ActionScore {
  /// `rank` where there is none: of real actions, and where there are too many actions to count.
  static constexpr int64_t kNoRank = -1;

  float probability;  ///< NaN for real actions
  float loss;
  int64_t rank;  ///< 1 + how many actions are more probable; kNoRank
};

/// Scores actions of one space by the predictions of its head (AlgorithmDistillation::Predictions), in double
/// precision and one row at a time: so a score depends on nothing but its own row. Immutable; thread-safe.
class ActionScorer {
 public:
  /// More joint actions of a MultiDiscrete than these are not counted: their rank is 1 or kNoRank.
  static constexpr int64_t kMostJointActions = 65536;

  /// Of the tasks of a family, or of one group among `shape.spaces`.
  ActionScorer(const ModelOptions& options, const ModelShape& shape, size_t group = 0);

  /// Numbers of an action.
  int64_t elements() const { return space_.size(); }
  /// Whether actions are those of a Box.
  bool is_real() const { return space_.kind == Space::Kind::kBox; }
  /// "cross_entropy", "squared_error" or "negative_log_likelihood".
  const char* loss_name() const;

  /// `action`: elements() numbers, as the histories have them. The loss is the head's own, without label
  /// smoothing: the cross-entropy, summed over elements; the mean squared error; or minus the logarithm of
  /// the density. Throws DataError for a whole number that the space does not have.
  ActionScore operator()(std::span<const float> prediction, std::span<const double> action) const;

 private:
  ActionScore of_whole_numbers(std::span<const float> logits, std::span<const double> action) const;
  float loss_of_real_numbers(std::span<const float> prediction, std::span<const double> action) const;
  /// Of an action whose logits, summed over elements, are `taken`, where each element has choices of its own.
  int64_t joint_rank(std::span<const float> logits, double taken, bool is_first) const;

  Space space_;
  ActionHeadKind head_;
};

/// The actions that were taken at the rows' queries: float64 (B, elements) on the CPU.
at::Tensor taken_actions(const Batch& rows);

}  // namespace adtrain
