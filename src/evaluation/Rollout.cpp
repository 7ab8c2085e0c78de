#include "evaluation/Rollout.h"

#include <utility>

#include <ATen/core/grad_mode.h>

#include "environments/FamilyEnvironments.h"
#include "evaluation/GridLearners.h"

namespace adtrain {
namespace {

std::vector<Rollout::Part> learners_of(const TaskFamily& family, std::span<const Trial> trials,
                                       const ModelOptions& model, const EvaluationOptions& options,
                                       const RollingPredictors& kept, const MakePlanner& plan) {
  std::vector<int64_t> tasks;
  for (const Trial& trial : trials) tasks.push_back(trial.task);
  std::vector<Rollout::Part> parts;
  parts.push_back({std::make_unique<GridLearners>(std::make_unique<FamilyEnvironments>(family, tasks), trials,
                                                  model, options, kept, plan),
                   trials.size()});
  return parts;
}

}  // namespace

Rollout::Rollout(const TaskFamily& family, std::span<const Trial> trials, const ModelOptions& model,
                 const EvaluationOptions& options, const RollingPredictors& kept, const MakePlanner& plan)
    : Rollout(learners_of(family, trials, model, options, kept, plan)) {}

Rollout::Rollout(std::vector<Part> parts) {
  for (Part& part : parts) parts_.emplace_back(std::move(part.learners), part.trials);
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
