#pragma once

#include <filesystem>
#include <string>

namespace adtrain {

/// Where a run keeps what. `root` is runs/<name>.
struct RunFolder {
  std::filesystem::path root;

  std::filesystem::path config() const { return root / "config.yaml"; }
  std::filesystem::path checkpoints() const { return root / "checkpoints"; }
  std::filesystem::path tensorboard() const { return root / "tensorboard"; }
  std::filesystem::path metrics() const { return root / "metrics.jsonl"; }
  std::filesystem::path loss_curve() const { return root / "loss_curve"; }
  /// Which rank ended the last start of this run, and why; gone as soon as it is started again.
  std::filesystem::path failure() const { return root / "failure.txt"; }
  /// Left behind, and empty, by a run that stopped on request behind a checkpoint; gone when it is started
  /// again.
  std::filesystem::path requeue() const { return root / "requeue"; }
  std::filesystem::path evaluation() const { return root / "evaluation"; }
};

}  // namespace adtrain
