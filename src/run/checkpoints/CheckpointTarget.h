#pragma once

#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "checkpoint/CheckpointStore.h"

namespace adtrain {

/// What RUN|CHECKPOINT on the command line refers to: the folder of a run, all of its checkpoints; or one
/// checkpoint's folder, that alone.
class CheckpointTarget {
 public:
  /// Throws CheckpointError where it is neither.
  explicit CheckpointTarget(std::filesystem::path folder);

  /// Folders of checkpoints, verified or not, by ascending steps; at least one.
  const std::vector<std::filesystem::path>& checkpoints() const { return checkpoints_; }
  /// Which step of the run is recorded as its best; nothing where none is.
  std::optional<BestCheckpoint> best() const;
  /// The one checkpoint, or the run's newest that verifies. Throws CheckpointError where there is none, which
  /// says what is wrong with each.
  CheckpointStore::Found newest() const;

 private:
  std::filesystem::path folder_;
  bool is_run_;
  std::vector<std::filesystem::path> checkpoints_;
};

/// The target's newest checkpoint, for commands that print their answer to standard output: newer ones that
/// do not verify are named on standard error.
CheckpointStore::Found newest_of(const std::filesystem::path& target);

/// The settings in `configuration` (a resolved YAML text, as a manifest holds it) in one line: network, its
/// sizes, task family. "" where there is no configuration.
std::string summary_of_configuration(const std::string& configuration);
/// The resolved YAML text in a manifest's state; "" where it has none.
std::string configuration_in(const nlohmann::json& state);

}  // namespace adtrain
