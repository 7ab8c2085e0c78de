#pragma once

#include <cstdint>
#include <optional>

#include "config/Section.h"

namespace adtrain {

/// Which in-context returns are measured while training, and how many trials that takes. All else is as an
/// evaluation's options say.
struct ReturnOptions {
  int64_t interval = 0;  ///< optimizer steps; 0 for none
  int64_t episodes = 20;
  int64_t repeats = 1;
  std::optional<int64_t> task_limit = 16;

  void declare(Section& section);

  /// Whether they are measured after `step` of a run of `last_step` steps.
  bool due(int64_t step, int64_t last_step) const {
    return interval > 0 && (step % interval == 0 || step == last_step);
  }
};

}  // namespace adtrain
