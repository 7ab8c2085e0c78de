#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "distributed/Communicator.h"
#include "run/RunConfig.h"

namespace adtrain {

/// What all ranks together saw of one training step; the same on every rank.
struct StepFigures {
  int64_t parameters = 0;
  double loss = 0;                     ///< mean over the global batch, in nats
  double seconds = 0;                  ///< on the slowest rank
  std::vector<std::string> checksums;  ///< of the updated parameters' bits, by rank
  bool updated = false;                ///< whether the step changed the parameters, on every rank
  /// A sentence for each thing that is wrong.
  std::vector<std::string> faults() const;
};

/// Takes one optimizer step of the configured model as training takes it, over random histories in memory:
/// each rank its part of the global batch, the gradient's all-reduce during the backward pass, clipping,
/// AdamW; in fp32. Collective.
StepFigures check_step(const RunConfig& config, Communicator& communicator);

}  // namespace adtrain
