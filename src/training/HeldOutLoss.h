#pragma once

#include <cstdint>
#include <functional>
#include <optional>

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

  /// Is told, after each forward pass of all ranks, the share of the windows that is done, and says on every
  /// rank alike whether to go on. Collective.
  using GoesOn = std::function<bool(double share)>;
  /// Nothing where it was not to go on. Collective: every rank calls it at the same step.
  std::optional<LossFigures> measure(const GoesOn& goes_on);
  /// One forward pass of `batch` rows, or of all where there are fewer, for its memory and time. Collective.
  void measure_first_batch();

 private:
  /// Adds those of samples first … end − 1, in one forward pass; of none where there are none.
  void add(int64_t first, int64_t end, LossSums& sums) const;

  const BatchAssembler& windows_;
  AlgorithmDistillation& model_;
  Communicator& communicator_;
  int64_t batch_;
};

}  // namespace adtrain
