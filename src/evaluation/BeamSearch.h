#pragma once

#include <cstdint>
#include <memory>

#include <ATen/core/Tensor.h>

#include "data/Batch.h"
#include "evaluation/EvaluationOptions.h"
#include "model/AlgorithmDistillation.h"

namespace adtrain {

/// What a search begins from, of n environments.
struct PlannedRows {
  Batch history;       ///< each row's last transitions at the end of W columns, zeros before shorter ones
  at::Tensor lengths;  ///< int64 (n): columns that are there
  at::Tensor states;   ///< int32 (n, 2): the present ones
  at::Tensor draws;    ///< fp32 (n, BeamSearch::draws()): uniform in [0, 1)

  PlannedRows to(at::Device device) const;
  /// Overwrites the values with those of rows of the same shapes.
  void copy_from(const PlannedRows& other);
};

/// Beam search in what a network has learnt of the environment, as in "Distilling Reinforcement Learning
/// Algorithms for In-Context Model-Based Planning" (Son et al., ICLR 2025, arXiv:2502.19009): model
/// predictive control, anew at each step of the environment.
///
/// A beam is a course of actions with the outcomes that are most probable by the network. At each of
/// `planning_horizon` depths every beam draws `beam_draws` different actions from the policy at
/// `eval_temperature` (by Gumbel's trick; with eval_sampling greedy the most probable ones), and the `beam_k`
/// beams with most rewards go on; of equal ones those that took earlier draws. The first action of the best
/// beam is taken, so that where no reward is in sight it is one drawn from the policy.
///
/// Rewards count in rows alone whose history holds one. Before, what the network expects is no knowledge of
/// the environment: the learners of its histories did what they knew to be good, so that it takes its own
/// actions as a sign that they are (Ortega et al., 2021, arXiv:2110.10819, call that a delusion), and a
/// search for the highest expectation finds the deepest of them.
///
/// All environments and their beams are one batch in each pass. Everything runs on the network's device,
/// which nothing here waits for; shapes depend on those of the rows alone. For one thread.
class BeamSearch {
 public:
  /// `model` has dynamics; it is borrowed.
  BeamSearch(AlgorithmDistillation& model, const EvaluationOptions& options);

  /// Transitions of a row's history: n_transit without those that are imagined and the query.
  int64_t history() const { return history_; }
  /// Random numbers that a row takes at each step; 0 where nothing is drawn.
  int64_t draws() const { return draws_; }

  struct Plan {
    at::Tensor actions;  ///< int64 (n): the first ones of the best beams
    at::Tensor returns;  ///< fp32 (n): their imagined rewards, less up to a half for later draws
    /// What is expected in the present states, fp32 (n, num_actions): the policy's logits, probabilities of
    /// reward.
    at::Tensor logits, rewards;
  };
  /// `rows`: on the network's device.
  Plan operator()(const PlannedRows& rows);

 private:
  /// Beams at a depth, of one environment.
  int64_t beams_at(int64_t depth) const;

  std::unique_ptr<Imagination> imagination_;
  int64_t horizon_, most_beams_, choices_, actions_, history_, draws_ = 0;
  bool draws_actions_;
  double temperature_;
};

}  // namespace adtrain
