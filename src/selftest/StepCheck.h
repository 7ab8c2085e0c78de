#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "collectives/Communicator.h"
#include "run/RunConfig.h"

namespace adtrain {

/// The measurements of one training step over all ranks; the same on every rank.
struct StepFigures {
  int64_t parameters = 0;
  double loss = 0;                     ///< mean over the global batch, in nats
  double seconds = 0;                  ///< on the slowest rank
  std::vector<std::string> checksums;  ///< of the updated parameters' bits, by rank
  bool updated = false;                ///< whether the step changed the parameters on every rank
  /// A sentence for each fault.
  std::vector<std::string> faults() const;
};

/// Runs one optimizer step of the configured model as training does, on random histories in memory: each
/// rank's part of the global batch, the gradient's all-reduce during the backward pass, clipping and AdamW,
/// in fp32. Collective.
StepFigures check_step(const RunConfig& config, Communicator& communicator);

}  // namespace adtrain
