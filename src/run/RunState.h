#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>

#include "run/LaunchIdentity.h"

namespace adtrain {

/// The stage of a run's life, as `state.json` in its folder records it.
struct RunState {
  enum class Stage {
    kTraining,  ///< a launch has claimed it and trains, or died if nobody holds the run's lock
    kStopped,   ///< on request, after a step whose checkpoint exists and verifies
    kFinished,  ///< the same, after the last step
  };
  Stage stage = Stage::kTraining;
  int64_t step = 0;  ///< at which the stage began
  LaunchIdentity launch;
  int64_t attempt = 0;  ///< restarts by that launch before this one

  /// Replaces the file atomically. Throws std::filesystem::filesystem_error.
  void write(const std::filesystem::path& file) const;
  /// Nothing where there is no readable file: runs of earlier versions have none.
  static std::optional<RunState> read(const std::filesystem::path& file);
};

}  // namespace adtrain
