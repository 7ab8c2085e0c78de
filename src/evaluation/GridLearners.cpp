#include "evaluation/GridLearners.h"

#include <algorithm>
#include <utility>

namespace adtrain {

GridLearners::GridLearners(std::unique_ptr<SteppedEnvironments> environments, std::span<const Trial> trials,
                           const ModelOptions& model, const EvaluationOptions& options,
                           const RollingPredictors& kept, const MakePlanner& plan)
    : environments_(std::move(environments)),
      context_(
          Context::create(model, static_cast<int64_t>(trials.size()), kept, options.eval_forget_unrewarded)),
      chooser_(options.eval_sampling, static_cast<uint64_t>(options.eval_seed), trials,
               options.eval_temperature),
      planner_(plan ? plan(trials) : nullptr),
      terminal_observation_(options.eval_terminal_observation),
      rewards_(trials.size()) {}

void GridLearners::act(const Predictor& predict) {
  states_.assign(environments_->states().begin(), environments_->states().end());
  actions_ =
      planner_ ? planner_->choose(*context_, states_) : chooser_.choose(context_->ask(predict, states_));
  environments_->begin_step(actions_);
}

void GridLearners::observe() {
  environments_->finish_step();
  std::ranges::transform(environments_->rewards(), rewards_.begin(),
                         [](double reward) { return static_cast<float>(reward); });
  // After the last step of an episode, states() is the start of the next one. Histories hold the same there,
  // and so the model has seen it in training (docs/history-format.md).
  const auto next_states = terminal_observation_ ? environments_->next_states() : environments_->states();
  context_->append({states_, actions_, rewards_, next_states, environments_->ended()});
}

}  // namespace adtrain
