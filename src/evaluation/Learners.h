#pragma once

#include <cstdint>
#include <span>

#include "evaluation/Predictor.h"

namespace adtrain {

/// n learners whose environments step together: what they have seen, from which the model predicts what they
/// do next. For one thread at a time; spans stay valid until the next call of act.
class Learners {
 public:
  virtual ~Learners() = default;

  /// Asks the model for actions and begins a step with them. Throws NonFiniteError where its answer is not
  /// finite, and what the environments throw.
  virtual void act(const Predictor& predict) = 0;
  /// Awaits that step, which becomes part of what the learners have seen.
  virtual void observe() = 0;
  /// (n): the last step's rewards, as the environments gave them.
  virtual std::span<const double> rewards() const = 0;
  /// (n): 1 where the last step ended an episode.
  virtual std::span<const uint8_t> ended() const = 0;
};

}  // namespace adtrain
