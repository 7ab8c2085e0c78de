#include "evaluation/BeamSearch.h"

#include <algorithm>
#include <tuple>

#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>

namespace adtrain {
namespace {

/// Uniform numbers -> Gumbel's. fp32 rounds what is nearer to 0 and 1 to infinite values.
at::Tensor gumbel_of(const at::Tensor& uniform) {
  constexpr double kLeast = 1e-7;
  return uniform.clamp(kLeast, 1 - kLeast).log().neg().log().neg();
}

}  // namespace

PlannedRows PlannedRows::to(at::Device device) const {
  return {history.to(device), lengths.to(device), states.to(device), draws.to(device)};
}

void PlannedRows::copy_from(const PlannedRows& other) {
  history.copy_from(other.history);
  lengths.copy_(other.lengths);
  states.copy_(other.states);
  draws.copy_(other.draws);
}

BeamSearch::BeamSearch(AlgorithmDistillation& model, const EvaluationOptions& options)
    : imagination_(model.imagination()),
      horizon_(options.planning_horizon),
      most_beams_(options.beam_k),
      choices_(std::min(options.beam_draws, model.shape().num_actions)),
      actions_(model.shape().num_actions),
      history_(model.options().n_transit - options.planning_horizon),
      draws_actions_(options.eval_sampling == Sampling::kSample),
      temperature_(options.eval_temperature) {
  TORCH_CHECK(imagination_, "a network without dynamics cannot plan");
  if (!draws_actions_) return;
  for (int64_t depth = 0; depth < horizon_; ++depth) draws_ += beams_at(depth) * actions_;
}

int64_t BeamSearch::beams_at(int64_t depth) const {
  int64_t beams = 1;
  for (int64_t i = 0; i < depth && beams < most_beams_; ++i) beams = std::min(most_beams_, beams * choices_);
  return beams;
}

BeamSearch::Plan BeamSearch::operator()(const PlannedRows& rows) {
  const at::NoGradGuard no_grad;
  const int64_t n = rows.states.size(0);
  Imagination::Outlook outlook = imagination_->begin(rows.history, rows.lengths, rows.states);
  Plan plan = {.actions = {}, .returns = {}, .logits = outlook.actions, .rewards = outlook.rewards};
  at::Tensor first_actions;  // int64 (n, beams)
  at::Tensor returns = at::zeros({n, 1}, outlook.rewards.options());
  const at::Tensor first_rows = at::arange(n, rows.lengths.options()).unsqueeze(1);
  const at::Tensor known = rows.history.rewards.ne(0).any(1).view({n, 1, 1});
  // Of each choice; over the horizon they are less than a reward together.
  const at::Tensor departures =
      at::arange(choices_, returns.options()) / static_cast<double>(2 * choices_ * horizon_);
  const at::Tensor gumbel = draws_actions_ ? gumbel_of(rows.draws) : at::Tensor();
  int64_t drawn = 0;
  for (int64_t depth = 0;; ++depth) {
    const int64_t beams = beams_at(depth);
    at::Tensor preferences = outlook.actions.view({n, beams, actions_});
    if (draws_actions_) {
      preferences =
          preferences / temperature_ + gumbel.narrow(1, drawn, beams * actions_).view({n, beams, actions_});
      drawn += beams * actions_;
    }
    // The drawn actions of all beams, and what these beams then earn: (n, beams, choices), then (n, beams ·
    // choices).
    const at::Tensor actions = std::get<1>(preferences.topk(choices_, -1));
    const at::Tensor rewarded =
        outlook.rewards.view({n, beams, actions_}).gather(2, actions).gt(0.5).logical_and(known);
    const at::Tensor earned = (returns.unsqueeze(2) + rewarded - departures).flatten(1);
    const int64_t going_on = depth + 1 == horizon_ ? 1 : beams_at(depth + 1);
    const auto [best, places] = earned.topk(going_on, 1);
    const at::Tensor chosen = actions.flatten(1).gather(1, places);
    const at::Tensor from = at::floor_divide(places, choices_);
    first_actions = depth == 0 ? chosen : first_actions.gather(1, from);
    returns = best;
    if (depth + 1 == horizon_) break;
    outlook = imagination_->go_on((first_rows * beams + from).flatten(), chosen.flatten());
  }
  plan.actions = first_actions.squeeze(1);
  plan.returns = returns.squeeze(1);
  return plan;
}

}  // namespace adtrain
