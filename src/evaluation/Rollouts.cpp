#include "evaluation/Rollouts.h"

#include <memory>
#include <optional>

#include "evaluation/Rollout.h"
#include "evaluation/gpu/GpuRollout.h"
#include "evaluation/gpu/PackedNetwork.h"

namespace adtrain {

Rollouts Rollouts::stepwise(const Predictor& predict, const TaskFamily& family, const ModelOptions& model,
                            const EvaluationOptions& options) {
  const auto begin = [=, &family](std::span<const Trial> trials) -> RunEpisode {
    auto rollout = std::make_shared<Rollout>(family, trials, model, options);
    return [rollout, predict] { return rollout->run_episode(predict); };
  };
  return {begin, "environments on the CPU"};
}

Rollouts Rollouts::of(AlgorithmDistillation& model, const TaskFamily& family,
                      const EvaluationOptions& options) {
  Rollouts stepwise = Rollouts::stepwise(predictor_of(model), family, model.options(), options);
  if (!model.parameters().flat().is_cuda()) return stepwise;
  if (family.plugin() != nullptr) {
    stepwise.place += ", asked step by step: they are a plug-in's";
    return stepwise;
  }
  const auto because = [&](const std::string& objection) {
    stepwise.place += ", asked step by step: the rollout kernel does not take this model, as " + objection;
    return stepwise;
  };
  if (const auto objection = PackedNetwork::objection(model.options(), model.shape()))
    return because(*objection);
  auto network = std::make_shared<const PackedNetwork>(model);
  if (!GpuRollout::fits(*network, model.options()))
    return because("this GPU lacks the shared memory, cooperative launches or bf16 products that it takes");
  const auto begin = [=, shape = model.options(), &family](std::span<const Trial> trials) -> RunEpisode {
    auto rollout = std::make_shared<GpuRollout>(*network, family, trials, shape, options);
    return [network, rollout] { return rollout->run_episode(); };
  };
  return {begin, "environments on the GPU, an episode a kernel"};
}

}  // namespace adtrain
