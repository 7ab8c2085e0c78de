#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>

#include "run/LaunchIdentity.h"

namespace adtrain {

/// Where a run stands in its life, as `state.json` in its folder tells.
struct RunState {
  enum class Stage {
    kTraining,  ///< a launch has claimed it and trains; or it died, where nobody has the run's lock
    kStopped,   ///< on request, after a step whose checkpoint stands and verifies
    kFinished,  ///< the same, after the last step
  };
  Stage stage = Stage::kTraining;
  int64_t step = 0;  ///< with which the stage began
  LaunchIdentity launch;
  int64_t attempt = 0;  ///< restarts by that launch before this one

  /// Replaces the file in one step. Throws std::filesystem::filesystem_error.
  void write(const std::filesystem::path& file) const;
  /// Nothing where there is none that can be read: runs of earlier versions have none.
  static std::optional<RunState> read(const std::filesystem::path& file);
};

}  // namespace adtrain
