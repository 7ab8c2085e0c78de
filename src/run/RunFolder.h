#pragma once

#include <cstdint>
#include <filesystem>
#include <string>

namespace adtrain {

/// Where a run keeps what. `root` is runs/<name>.
struct RunFolder {
  std::filesystem::path root;

  std::filesystem::path config() const { return root / "config.yaml"; }
  /// What config.yaml was before the run was continued with another one, counted from 1.
  std::filesystem::path former_config(int64_t number) const {
    return root / ("config." + std::to_string(number) + ".yaml");
  }
  /// Who trains here now (see RunLock); no such file where nobody does.
  std::filesystem::path lock() const { return root / "lock"; }
  /// How far the run has come in its life, and which launch has brought it there (see RunState).
  std::filesystem::path state() const { return root / "state.json"; }
  std::filesystem::path checkpoints() const { return root / "checkpoints"; }
  /// Checkpoints on their way out.
  std::filesystem::path overwritten() const { return root / "checkpoints.overwritten.tmp"; }
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
