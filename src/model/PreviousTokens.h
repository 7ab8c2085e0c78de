#pragma once

#include <cstdint>
#include <optional>

#include <ATen/core/Tensor.h>

#include "data/Batch.h"
#include "kernels/embedding/NewestTokenTables.h"
#include "model/Initialisation.h"
#include "model/Layers.h"
#include "model/ModelOptions.h"

namespace adtrain {

/// Plain rows as tokens of the previous action, the previous reward and the present state, as in the baseline
/// of XLand-100B (arXiv:2406.08973):
///
///     token t = Linear(concat(Embedding(a of t−1), r of t−1, Linear(concat(Embedding(x of t), Embedding(y of
///     t)))))
///
/// Each of the three embeddings, and the state that the inner Linear makes of its coordinates, has kFeatures
/// features; a coordinate has a table of its own. Before the first token of a window stand action 0 and
/// reward 0, or learned features: a batch does not know where episodes begin, so that an episode's first step
/// follows the last of the episode before.
class PreviousTokens {
 public:
  static constexpr int64_t kFeatures = 64;

  PreviousTokens(ParameterFactory& factory, const ModelOptions& options, const ModelShape& shape,
                 const Initialisation& initial);

  /// (B, T, width). The last action and reward of a row, and its next states, are not read.
  at::Tensor operator()(const Batch& batch) const;
  /// The last of them alone: (B, 1, width).
  at::Tensor newest(const Batch& batch) const;
  /// What newest() of two or more steps sums up, where its products are exact but for rounding.
  std::optional<kernels::NewestTokenTables> newest_tables() const;

 private:
  /// Of as many steps: features of the actions (B, steps, kFeatures) and rewards (B, steps, 1) before them,
  /// and their states (B, steps, 2).
  at::Tensor tokens(const at::Tensor& actions, const at::Tensor& rewards, const at::Tensor& states) const;
  at::Tensor features_of(const at::Tensor& rewards) const;
  /// (B, T, kFeatures) and (B, T, 1).
  at::Tensor previous_actions(const Batch& batch) const;
  at::Tensor previous_rewards(const Batch& batch) const;

  int64_t grid_size_;
  Embedding embed_coordinate_;  ///< (2 · grid size, kFeatures): the rows of x, then those of y
  Linear embed_state_;
  Embedding embed_action_;
  at::Tensor first_action_, first_reward_;  ///< (kFeatures), (1); undefined where zeros stand for them
  Linear embed_token_;
};

}  // namespace adtrain
