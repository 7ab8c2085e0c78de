#pragma once

#include "SmallRun.h"

namespace adtrain {

/// Writes histories that are in no case those of a grid family into the run's folder; see
/// write_own_histories.py.
inline Finished write_own_histories(const SmallRun& run) {
  return run.shell(ADTRAIN_PYTHON " " ADTRAIN_SOURCE_DIR "/tests/cli/write_own_histories.py .");
}

}  // namespace adtrain
