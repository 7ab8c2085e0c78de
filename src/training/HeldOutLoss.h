#pragma once

#include <cstdint>

#include "collectives/Communicator.h"
#include "data/BatchAssembler.h"
#include "model/AlgorithmDistillation.h"
#include "training/LossSums.h"

namespace adtrain {

/// Loss and accuracy at the last position of every window of the held-out tasks' histories; of packed rows at
/// every position, as none of a row is the last of all. Each rank takes
/// its share of the windows and the sums are merged, so the figures are those of one process whatever the
/// number of ranks.
class HeldOutLoss {
 public:
  /// Borrows all three. `batch`: rows of one rank's forward pass.
  HeldOutLoss(const BatchAssembler& windows, AlgorithmDistillation& model, Communicator& communicator,
              int64_t batch);

  /// Collective: every rank calls it at the same step.
  LossFigures measure();
  /// One forward pass of `batch` rows, or of all where there are fewer, for its memory and time. Collective.
  void measure_first_batch();

 private:
  /// The sums over samples first … end − 1.
  LossSums sums_of(int64_t first, int64_t end) const;

  const BatchAssembler& windows_;
  AlgorithmDistillation& model_;
  Communicator& communicator_;
  int64_t batch_;
};

}  // namespace adtrain
