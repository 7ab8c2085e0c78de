#pragma once

#include <cstdint>
#include <deque>
#include <memory>
#include <span>
#include <vector>

#include "environments/SteppedEnvironments.h"
#include "evaluation/ActionChooser.h"
#include "evaluation/Context.h"
#include "evaluation/EvaluationOptions.h"
#include "evaluation/Trial.h"
#include "model/ModelOptions.h"

namespace adtrain {

/// Trials whose environments step together: their contexts, which begin empty and persist across episodes,
/// and what they earn. Where episodes have different lengths, trials with short ones play on while others are
/// in their first; what a trial sees and does depends on itself alone.
class LockStep {
 public:
  LockStep(std::unique_ptr<SteppedEnvironments> environments, std::span<const Trial> trials,
           const ModelOptions& model, const EvaluationOptions& options);

  /// Asks the model for actions and begins a step with them. Throws NonFiniteError where logits are not
  /// finite.
  void act(const Predictor& predict);
  /// Awaits that step.
  void observe();
  bool is_stepping() const { return is_stepping_; }

  /// Whether each trial has ended an episode that was not taken yet.
  bool has_episode() const;
  /// Appends the return of each trial's first such episode to `returns`.
  void take_episode(std::vector<float>& returns);

 private:
  std::unique_ptr<SteppedEnvironments> environments_;
  std::unique_ptr<Context> context_;
  ActionChooser chooser_;
  bool terminal_observation_;
  bool is_stepping_ = false;
  std::vector<int32_t> states_;             ///< (n, 2): in which the actions are chosen
  std::span<const int32_t> actions_;        ///< (n): the chooser's
  std::vector<float> rewards_;              ///< (n): the last step's, as the model sees them
  std::vector<double> earned_;              ///< (n): in the running episode
  std::vector<std::deque<float>> returns_;  ///< of each trial's episodes that were not taken yet
};

}  // namespace adtrain
