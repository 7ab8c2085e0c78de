#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>

#include "checkpoint/CheckpointStore.h"
#include "framework/Ranks.h"
#include "model/AlgorithmDistillation.h"
#include "run/RunConfig.h"
#include "run/RunFolder.h"
#include "telemetry/Console.h"

namespace adtrain {

/// A run, or one of its checkpoints, whose weights a command uses.
struct TrainedRun {
  RunFolder folder;
  std::optional<std::filesystem::path> checkpoint;  ///< none: the newest that verifies

  /// What the command line's folder refers to. Throws CheckpointError where it is neither.
  static TrainedRun at(std::filesystem::path path);

  /// The step that the checkpoint's folder is named for, or that of the link `latest`, without it of the
  /// newest folder; 0 where none has such a name.
  int64_t named_step() const;
  /// What it refers to without the optimizer's state, read and verified. Says on the console what was passed
  /// over. Throws CheckpointError, and ConfigError where its weights are of another network than the
  /// configuration's: see other_blocks.
  Snapshot read(const RunConfig& config, Console& console) const;
  /// Reads the weights of a network that is to be loaded on rank 0, rounds them to `type` and gives them to
  /// all ranks, each on its device, for passes without gradients. Returns the checkpoint's step. Collective.
  int64_t load_weights(const RunConfig& config, Console& console, const Ranks& ranks, at::ScalarType type,
                       AlgorithmDistillation& model) const;
};

}  // namespace adtrain
