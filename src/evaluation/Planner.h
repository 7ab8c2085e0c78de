#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <vector>

#include <c10/core/Device.h>

#include "base/Random.h"
#include "evaluation/BeamSearch.h"
#include "evaluation/Context.h"
#include "evaluation/Trial.h"
#include "memory/StepGraph.h"

namespace adtrain {

/// Chooses the actions of trials whose network plans; takes ActionChooser's place. Each trial draws from a
/// random stream of its own, so that its actions do not depend on which others are beside it. For one thread.
class Planner {
 public:
  /// Borrows `model`. `captures`: whether on a GPU steps are replays of one CUDA graph, on the stream that is
  /// then current, which must not be the default one; the first step runs eagerly.
  Planner(AlgorithmDistillation& model, const EvaluationOptions& options, std::span<const Trial> trials,
          bool captures);

  /// `states`: (n, 2), the present ones. The result is valid until the next call. Throws NonFiniteError where
  /// a row's logits or probabilities of reward are NaN or infinite.
  std::span<const int32_t> choose(const Context& context, std::span<const int32_t> states);

 private:
  BeamSearch::Plan plan_of(const PlannedRows& rows);

  BeamSearch search_;
  at::Device device_;
  bool captures_;
  std::optional<StepGraph> graph_;
  PlannedRows rows_;        ///< on the device: what the graph reads
  BeamSearch::Plan found_;  ///< what it writes
  std::vector<Trial> trials_;
  std::vector<RandomStream> streams_;
  std::vector<int32_t> actions_;
};

/// Makes the planner of some trials; null where the network does not plan.
using MakePlanner = std::function<std::unique_ptr<Planner>(std::span<const Trial> trials)>;

}  // namespace adtrain
