#include "run/TrainingInputs.h"

#include <utility>

#include <ATen/Context.h>
#include <fmt/format.h>

#include "collectives/Agreement.h"
#include "model/FrozenParameters.h"

namespace adtrain {

TrainingInputs::TrainingInputs(const RunConfig& config, const Ranks& ranks, Console& console,
                               TrainingHistories::OwnTasks own, Weights weights)
    : histories_(TrainingHistories::of(config, ranks, console, std::move(own))) {
  at::globalContext().setAllowTF32CuBLAS(config.training.tf32);
  at::globalContext().setDeterministicAlgorithms(config.training.deterministic, /*warn_only=*/false);
  check_same(*ranks.communicator, fmt::format("the digest of the histories in {}", config.histories()),
             histories_->digest());
  const auto make =
      weights == Weights::kFollow ? AlgorithmDistillation::to_be_loaded : AlgorithmDistillation::create;
  model_ = make(config.model, config.model_shape(), static_cast<uint64_t>(config.training.seed));
  freeze(model_->parameters(), config.training.freeze.value_or(""), config.place_of("freeze"));
  model_->parameters().to(ranks.device.device, config.training.compute_type(ranks.device.device));
}

}  // namespace adtrain
