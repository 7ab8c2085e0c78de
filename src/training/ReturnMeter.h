#pragma once

#include <optional>

#include <nlohmann/json.hpp>

namespace adtrain {

/// Returns in context, each the mean over tasks and repeats.
struct ContextReturns {
  double first_episode = 0;
  double last_ten = 0;  ///< mean of the last ten episodes, or of all where there are fewer
};

/// Of each side of the task split; nothing of a side that has no tasks.
struct ReturnFigures {
  std::optional<ContextReturns> held_out, trained;
  /// What identifies the figures on held-out tasks, whatever the step: equal identities make them comparable.
  nlohmann::ordered_json measured_on = nullptr;
};

/// Measures how well the network that is being trained learns in context.
class ReturnMeter {
 public:
  virtual ~ReturnMeter() = default;

  /// The figures of the present weights, on every rank; nothing where any rank was asked to stop meanwhile,
  /// and where environments failed, which has been said. Changes nothing that training reads. Collective.
  virtual std::optional<ReturnFigures> measure() = 0;
};

}  // namespace adtrain
