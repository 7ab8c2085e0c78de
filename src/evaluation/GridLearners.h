#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "environments/SteppedEnvironments.h"
#include "evaluation/ActionChooser.h"
#include "evaluation/Context.h"
#include "evaluation/EvaluationOptions.h"
#include "evaluation/Learners.h"
#include "evaluation/Planner.h"
#include "evaluation/Trial.h"
#include "model/ModelOptions.h"

namespace adtrain {

/// Learners in grids: two coordinates are observed, one of five actions is chosen.
class GridLearners final : public Learners {
 public:
  /// `kept`: how contexts keep keys and values. `plan`: chooses the actions in the model's place, where it is
  /// not null.
  GridLearners(std::unique_ptr<SteppedEnvironments> environments, std::span<const Trial> trials,
               const ModelOptions& model, const EvaluationOptions& options,
               const RollingPredictors& kept = {}, const MakePlanner& plan = {});

  void act(const Predictor& predict) override;
  void observe() override;
  std::span<const double> rewards() const override { return environments_->rewards(); }
  std::span<const uint8_t> ended() const override { return environments_->ended(); }

 private:
  std::unique_ptr<SteppedEnvironments> environments_;
  std::unique_ptr<Context> context_;
  ActionChooser chooser_;
  std::unique_ptr<Planner> planner_;
  bool terminal_observation_;
  std::vector<int32_t> states_;       ///< (n, 2): in which the actions are chosen
  std::span<const int32_t> actions_;  ///< (n): the chooser's
  std::vector<float> rewards_;        ///< (n): the last step's, as the model sees them
};

}  // namespace adtrain
