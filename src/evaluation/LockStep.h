#pragma once

#include <deque>
#include <memory>
#include <vector>

#include "evaluation/Learners.h"

namespace adtrain {

/// Trials whose environments step together, and what they earn. Their contexts begin empty and persist across
/// episodes. Where episodes have different lengths, trials with short ones play on while others are in their
/// first; what a trial sees and does depends on itself alone.
class LockStep {
 public:
  /// Of `trials` learners.
  LockStep(std::unique_ptr<Learners> learners, size_t trials);

  /// Asks the model for actions and begins a step with them. Throws NonFiniteError where its answer is not
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
  std::unique_ptr<Learners> learners_;
  bool is_stepping_ = false;
  std::vector<double> earned_;              ///< (n): in the running episode
  std::vector<std::deque<float>> returns_;  ///< of each trial's episodes that were not taken yet
};

}  // namespace adtrain
