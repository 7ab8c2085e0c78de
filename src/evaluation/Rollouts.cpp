#include "evaluation/Rollouts.h"

#include <memory>
#include <optional>
#include <utility>

#include <fmt/format.h>

#include "base/Random.h"
#include "environments/worker/WorkerGrid.h"
#include "evaluation/GridLearners.h"
#include "evaluation/Rollout.h"
#include "evaluation/gpu/GpuRollout.h"
#include "evaluation/gpu/PackedNetwork.h"
#include "evaluation/spaces/SpaceLearners.h"

namespace adtrain {
namespace {

/// Each trial's environments have random numbers of their own, whichever trials are beside it.
std::vector<std::unique_ptr<WorkerBatch>> environments_in(WorkerPool& workers, std::span<const Trial> trials,
                                                          const EvaluationOptions& options) {
  constexpr int kStreamOfEnvironments = 1;
  constexpr int kBitsTooMany = 64 - 31;  // NumPy's and Gymnasium's seeds are below 2³²
  std::vector<PlaceOrder> places;
  for (const Trial& trial : trials) {
    const uint64_t seed =
        seed_of(static_cast<uint64_t>(options.eval_seed), trial.task, trial.repeat, kStreamOfEnvironments);
    places.push_back({trial.task, static_cast<int64_t>(seed >> kBitsTooMany)});
  }
  return workers.make(places);
}

/// Of a model that plans.
Rollouts planned(AlgorithmDistillation& model, const TaskFamily& family, const EvaluationOptions& options,
                 bool captures) {
  const auto plan = [=, &model](std::span<const Trial> trials) {
    return std::make_unique<Planner>(model, options, trials, captures);
  };
  Rollouts rollouts = Rollouts::stepwise(/*predict=*/{}, family, model.options(), options, /*kept=*/{}, plan);
  rollouts.place +=
      fmt::format(", {} beams planned {} steps ahead", options.beam_k, options.planning_horizon);
  if (model.parameters().flat().is_cuda())
    rollouts.place += ", asked step by step: the rollout kernel does not take this model, as it plans";
  return rollouts;
}

/// Makes the learners of some trials, to which a batch of environments belongs.
using MakeLearners =
    std::function<std::unique_ptr<Learners>(std::unique_ptr<WorkerBatch>, std::span<const Trial>)>;

/// A rollout in each batch of a worker's environments in turn.
Rollouts rollouts_of(WorkerPool& workers, const EvaluationOptions& options, const Predictor& predict,
                     const MakeLearners& make) {
  const auto begin = [=, &workers](std::span<const Trial> trials) -> RunEpisode {
    std::vector<Rollout::Part> parts;
    for (std::unique_ptr<WorkerBatch>& batch : environments_in(workers, trials, options)) {
      const auto size = static_cast<size_t>(batch->size());
      parts.push_back({make(std::move(batch), trials.first(size)), size});
      trials = trials.subspan(size);
    }
    auto rollout = std::make_shared<Rollout>(std::move(parts));
    return [rollout, predict] { return rollout->run_episode(predict); };
  };
  return {begin, fmt::format("environments of {} under {}", *workers.options().env_worker,
                             workers.hello().versions)};
}

}  // namespace

Rollouts Rollouts::stepwise(const Predictor& predict, const TaskFamily& family, const ModelOptions& model,
                            const EvaluationOptions& options, const RollingPredictors& kept,
                            const MakePlanner& plan) {
  const auto begin = [=, &family](std::span<const Trial> trials) -> RunEpisode {
    auto rollout = std::make_shared<Rollout>(family, trials, model, options, kept, plan);
    return [rollout, predict] { return rollout->run_episode(predict); };
  };
  std::string place = "environments on the CPU";
  if (kept) place += kept.slides ? ", keys and values kept" : ", keys and values kept while contexts grow";
  return {begin, place};
}

Rollouts Rollouts::in_workers(const Player& player, WorkerPool& workers, const EvaluationOptions& options) {
  const WorkerHello& hello = workers.hello();
  if (!player.shape.spaces.empty()) {
    const auto make = [=, &hello, spaces = player.shape.spaces.front()](std::unique_ptr<WorkerBatch> batch,
                                                                        std::span<const Trial> trials) {
      const SpaceLearners::Terms terms = {spaces, player.scale ? player.scale(trials) : SpaceScale(),
                                          player.model.n_transit, player.kept};
      return std::make_unique<SpaceLearners>(std::move(batch), hello, trials, terms, options);
    };
    return rollouts_of(workers, options, player.predict, make);
  }
  return rollouts_of(workers, options, player.predict,
                     [=, &hello, model = player.model, kept = player.kept](std::unique_ptr<WorkerBatch> batch,
                                                                           std::span<const Trial> trials) {
                       return std::make_unique<GridLearners>(
                           std::make_unique<WorkerGrid>(std::move(batch), hello), trials, model, options,
                           kept);
                     });
}

Rollouts Rollouts::at_random(WorkerPool& workers, const EvaluationOptions& options) {
  return rollouts_of(
      workers, options, /*predict=*/{},
      [=, &hello = workers.hello()](std::unique_ptr<WorkerBatch> batch, std::span<const Trial> trials) {
        return std::make_unique<RandomActions>(std::move(batch), hello, trials, options);
      });
}

Rollouts Rollouts::of(AlgorithmDistillation& model, const TaskFamily& family,
                      const EvaluationOptions& options, bool captures) {
  if (options.planning_horizon > 0) return planned(model, family, options, captures);
  const RollingPredictors kept = rolling_predictors_of(model, options.eval_context, captures);
  Rollouts stepwise = Rollouts::stepwise(predictor_of(model), family, model.options(), options, kept);
  if (!model.parameters().flat().is_cuda() || kept.slides) return stepwise;
  if (family.plugin() != nullptr) {
    stepwise.place += ", asked step by step: they are a plug-in's";
    return stepwise;
  }
  const auto because = [&](const std::string& objection) {
    stepwise.place += ", asked step by step: the rollout kernel does not take this model, as " + objection;
    return stepwise;
  };
  if (model.parameters().is_quantised()) return because("its weights are quantised");
  if (const auto objection = PackedNetwork::objection(model.options(), model.shape()))
    return because(*objection);
  if (const at::ScalarType type = model.parameters().compute_type(); type != at::kFloat)
    return because(fmt::format("it computes in {} and the kernel as in fp32", precision_name(type)));
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
