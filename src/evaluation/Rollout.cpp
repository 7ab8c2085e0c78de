#include "evaluation/Rollout.h"

#include <utility>

#include <ATen/core/grad_mode.h>

#include "environments/FamilyEnvironments.h"

namespace adtrain {
namespace {

std::vector<std::unique_ptr<SteppedEnvironments>> environments_of(const TaskFamily& family,
                                                                  std::span<const Trial> trials) {
  std::vector<int64_t> tasks;
  for (const Trial& trial : trials) tasks.push_back(trial.task);
  std::vector<std::unique_ptr<SteppedEnvironments>> parts;
  parts.push_back(std::make_unique<FamilyEnvironments>(family, tasks));
  return parts;
}

}  // namespace

Rollout::Rollout(const TaskFamily& family, std::span<const Trial> trials, const ModelOptions& model,
                 const EvaluationOptions& options)
    : Rollout(environments_of(family, trials), trials, model, options) {}

Rollout::Rollout(std::vector<std::unique_ptr<SteppedEnvironments>> parts, std::span<const Trial> trials,
                 const ModelOptions& model, const EvaluationOptions& options) {
  for (std::unique_ptr<SteppedEnvironments>& part : parts) {
    const auto size = static_cast<size_t>(part->size());
    parts_.emplace_back(std::move(part), trials.first(size), model, options);
    trials = trials.subspan(size);
  }
}

std::vector<float> Rollout::run_episode(const Predictor& predict) {
  const at::NoGradGuard no_grad;
  const auto act_unless_done = [&predict](LockStep& part) {
    if (!part.has_episode()) part.act(predict);
    return part.is_stepping();
  };
  bool any_steps = false;
  for (LockStep& part : parts_) any_steps |= act_unless_done(part);
  while (any_steps) {
    any_steps = false;
    for (LockStep& part : parts_) {
      if (!part.is_stepping()) continue;
      part.observe();
      any_steps |= act_unless_done(part);
    }
  }
  std::vector<float> returns;
  for (LockStep& part : parts_) part.take_episode(returns);
  return returns;
}

}  // namespace adtrain
