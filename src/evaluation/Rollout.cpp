#include "evaluation/Rollout.h"

#include <ATen/core/grad_mode.h>

namespace adtrain {
namespace {

std::vector<int64_t> tasks_of(std::span<const Trial> trials) {
  std::vector<int64_t> tasks;
  for (const Trial& trial : trials) tasks.push_back(trial.task);
  return tasks;
}

}  // namespace

Rollout::Rollout(const TaskFamily& family, std::span<const Trial> trials, const ModelOptions& model,
                 const EvaluationOptions& options)
    : environments_(family, tasks_of(trials)),
      context_(Context::create(model, static_cast<int64_t>(trials.size()))),
      chooser_(options.eval_sampling, static_cast<uint64_t>(options.eval_seed), trials),
      terminal_observation_(options.eval_terminal_observation) {}

std::vector<float> Rollout::run_episode(const Predictor& predict) {
  const at::NoGradGuard no_grad;
  std::vector<float> returns(environments_.size());
  do {
    run_step(predict);
    for (size_t i = 0; i < returns.size(); ++i) returns[i] += static_cast<float>(environments_.rewards()[i]);
  } while (!environments_.done());
  return returns;
}

void Rollout::run_step(const Predictor& predict) {
  states_.assign(environments_.states().begin(), environments_.states().end());
  const auto actions = chooser_.choose(context_->ask(predict, states_));
  environments_.step(actions);
  // After the last step of an episode, states() is the start of the next one. Histories hold the same there,
  // and so the model has seen it in training (docs/history-format.md).
  const auto next_states = terminal_observation_ ? environments_.next_states() : environments_.states();
  context_->append({states_, actions, environments_.rewards(), next_states});
}

}  // namespace adtrain
