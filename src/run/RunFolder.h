#pragma once

#include <algorithm>
#include <cstdint>
#include <filesystem>
#include <string>

namespace adtrain {

/// Whether a path is this folder or lies in it, once links are followed. Neither need exist.
inline bool is_within(const std::filesystem::path& path, const std::filesystem::path& folder) {
  const auto whole = std::filesystem::weakly_canonical(path);
  auto root = std::filesystem::weakly_canonical(folder);
  if (!root.has_filename()) root = root.parent_path();  // a slash stays at the end of what is not there
  return std::mismatch(root.begin(), root.end(), whole.begin(), whole.end()).first == root.end();
}

/// The paths in a run's folder. `root` is runs/<name>.
struct RunFolder {
  std::filesystem::path root;

  std::filesystem::path config() const { return root / "config.yaml"; }
  /// An earlier config.yaml, from before the run was continued with another one; counted from 1.
  std::filesystem::path former_config(int64_t number) const {
    return root / ("config." + std::to_string(number) + ".yaml");
  }
  /// Which process trains here now (see RunLock); absent where none does.
  std::filesystem::path lock() const { return root / "lock"; }
  /// The run's stage, and which launch has brought it there (see RunState).
  std::filesystem::path state() const { return root / "state.json"; }
  /// The configuration with its values, and how each start came about (see RunRecord).
  std::filesystem::path record() const { return root / "run.json"; }
  /// Of own tasks: which they are, and by what their observations and rewards are scaled (TaskScaling).
  std::filesystem::path tasks() const { return root / "tasks.json"; }
  std::filesystem::path checkpoints() const { return root / "checkpoints"; }
  /// Checkpoints that are being deleted.
  std::filesystem::path overwritten() const { return root / "checkpoints.overwritten.tmp"; }
  std::filesystem::path tensorboard() const { return root / "tensorboard"; }
  std::filesystem::path metrics() const { return root / "metrics.jsonl"; }
  std::filesystem::path loss_curve() const { return root / "loss_curve"; }
  /// Which rank ended the last start of this run, and why; removed when it is started again.
  std::filesystem::path failure() const { return root / "failure.txt"; }
  /// An empty file that a run leaves when it stopped on request after a checkpoint; removed when it is
  /// started again.
  std::filesystem::path requeue() const { return root / "requeue"; }
  /// How the batch sizes were found; without extension.
  std::filesystem::path batch_sizes() const { return root / "batch_sizes"; }
  /// What profile_steps has recorded.
  std::filesystem::path profile() const { return root / "profile"; }
  /// Holds a folder for each evaluation in context (see evaluation_folder). An earlier adtrain put results
  /// into it directly, and into folders beside it whose names begin with this one's.
  std::filesystem::path evaluation() const { return root / "evaluation"; }
  /// Holds a folder for each scoring of histories that was not to go elsewhere.
  std::filesystem::path scores() const { return root / "scores"; }
  /// How fast scoring was found to be, unless this was to go elsewhere.
  std::filesystem::path throughput() const { return root / "throughput"; }
};

}  // namespace adtrain
