#include "evaluation/LockStep.h"

#include <algorithm>
#include <utility>

namespace adtrain {

LockStep::LockStep(std::unique_ptr<SteppedEnvironments> environments, std::span<const Trial> trials,
                   const ModelOptions& model, const EvaluationOptions& options)
    : environments_(std::move(environments)),
      context_(Context::create(model, static_cast<int64_t>(trials.size()))),
      chooser_(options.eval_sampling, static_cast<uint64_t>(options.eval_seed), trials),
      terminal_observation_(options.eval_terminal_observation),
      rewards_(trials.size()),
      earned_(trials.size()),
      returns_(trials.size()) {}

void LockStep::act(const Predictor& predict) {
  states_.assign(environments_->states().begin(), environments_->states().end());
  actions_ = chooser_.choose(context_->ask(predict, states_));
  environments_->begin_step(actions_);
  is_stepping_ = true;
}

void LockStep::observe() {
  environments_->finish_step();
  is_stepping_ = false;
  for (size_t i = 0; i < rewards_.size(); ++i) {
    const double reward = environments_->rewards()[i];
    rewards_[i] = static_cast<float>(reward);
    earned_[i] += reward;
    if (environments_->ended()[i] != 0)
      returns_[i].push_back(static_cast<float>(std::exchange(earned_[i], 0.0)));
  }
  // After the last step of an episode, states() is the start of the next one. Histories hold the same there,
  // and so the model has seen it in training (docs/history-format.md).
  const auto next_states = terminal_observation_ ? environments_->next_states() : environments_->states();
  context_->append({states_, actions_, rewards_, next_states});
}

bool LockStep::has_episode() const {
  return std::ranges::none_of(returns_, [](const std::deque<float>& ended) { return ended.empty(); });
}

void LockStep::take_episode(std::vector<float>& returns) {
  for (std::deque<float>& ended : returns_) {
    returns.push_back(ended.front());
    ended.pop_front();
  }
}

}  // namespace adtrain
