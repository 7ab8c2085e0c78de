#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>

#include <nlohmann/json.hpp>

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

  /// What tells the run from one that is begun in its folder later.
  struct Beginning {
    nlohmann::ordered_json first_start;  ///< see RunRecord; null before an imported run is trained
    bool has_state = false;              ///< whether there is a state.json, which --overwrite deletes first

    static Beginning of(const RunFolder& folder);
  };
  Beginning beginning = {};  ///< as it was before anything of the run was read

  /// What the command line's folder refers to. Throws CheckpointError where it is neither.
  static TrainedRun at(std::filesystem::path path);

  /// The step that the checkpoint's folder is named for, or that of the link `latest`, without it of the
  /// newest folder; 0 where none has such a name.
  int64_t named_step() const;
  /// What it refers to without the optimizer's state, read and verified. Says on the console what was passed
  /// over. Throws CheckpointError, and ConfigError where its weights are of another network than the
  /// configuration's: see other_blocks.
  Snapshot read(const RunConfig& config, Console& console) const;
  /// To be called before results of its weights are written into a folder. Throws ConfigError where that is
  /// in the run's, and this is no longer the same run's: its results would be taken for the other one's. A
  /// run that was continued since is the same, whatever checkpoints it has by now.
  void refuse_if_replaced(const std::filesystem::path& results) const;
  /// Reads the weights of a network that is to be loaded on rank 0, rounds them to `type` and gives them to
  /// all ranks, each on its device, for passes without gradients. Returns the checkpoint's step. Collective.
  int64_t load_weights(const RunConfig& config, Console& console, const Ranks& ranks, at::ScalarType type,
                       AlgorithmDistillation& model) const;
};

}  // namespace adtrain
