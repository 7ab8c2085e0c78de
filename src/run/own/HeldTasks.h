#pragma once

#include <memory>
#include <string>

#include "data/HeldHistories.h"
#include "run/Ranks.h"
#include "run/RunConfig.h"
#include "run/own/OwnHistories.h"
#include "telemetry/Console.h"

namespace adtrain {

/// Where the histories of own tasks lie while a run trains on them: in the memory of each machine, one copy
/// for its ranks, from which GPUs may take their own; or in their files.
struct HeldTasks {
  std::unique_ptr<HeldHistories> held;  ///< null: they are read in place
  std::string why_not_on_gpu;           ///< as a sentence; "" where GPUs are to hold them too

  /// Decides by what the histories take in memory, `histories_on_gpu` and `history_cache`, and holds them.
  /// Collective: the same is decided on all ranks. Says it on the console, and how far reading has come.
  /// Throws as the source does, and DataError where GPUs must hold them and some cannot be trained on.
  static HeldTasks of(const RunConfig& config, const Ranks& ranks, const OwnHistories& histories,
                      Console& console);
};

}  // namespace adtrain
