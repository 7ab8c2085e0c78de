#include "run/FamilyReturns.h"

namespace adtrain {

FamilyReturns::FamilyReturns(const RunConfig& config, AlgorithmDistillation& trained,
                             Communicator& communicator)
    : ReturnsWhileTraining(config, trained, communicator),
      family_(TaskFamily::of(config.environment)),
      split_(TaskSplit::of(config.environment, family_.task_count(), config.tasks)) {
  expect_held_out(split_);
}

std::optional<ReturnFigures> FamilyReturns::measured_by(AlgorithmDistillation& model) {
  return figures_of({split_,
                     [&](const EvaluationOptions& options) {
                       return Rollouts::of(model, family_, options, /*captures=*/false);
                     },
                     EvaluationOrigin::of(config_.environment, family_, /*checkpoint_step=*/0)});
}

}  // namespace adtrain
