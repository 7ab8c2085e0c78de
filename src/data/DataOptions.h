#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "config/Section.h"

namespace adtrain {

/// Whether learning histories are held in the memory of each GPU.
enum class HistoriesOnGpu { kAuto, kOn, kOff };

/// With kAuto histories may take so much of what is free: the model and its activations need memory too.
constexpr int64_t most_on_gpu(int64_t free_bytes) {
  return free_bytes / 4;
}

/// Of histories of any space: what a task is drawn as often as.
enum class TaskWeights {
  kWindows,  ///< its windows: each window of all tasks is drawn once an epoch
  kTasks,    ///< any other task
};

/// Stands for all steps or all streams that there are.
inline constexpr int64_t kAllThereAre = 0;

/// Which part of the learning histories is trained on, and how it is cut into samples.
struct DataOptions {
  std::string traj_dir = "histories";
  int64_t train_source_timesteps = 1000;
  int64_t train_n_stream = 100;
  int64_t episode_stride = 1;
  double borrowed_episodes = 0;  ///< share of the windows that begin with them
  std::optional<double> least_final_return;
  int64_t num_workers = 2;
  HistoriesOnGpu histories_on_gpu = HistoriesOnGpu::kAuto;

  // Of histories of any space alone, which are read in place (docs/history-formats.md).
  std::optional<std::string> histories;      ///< paths, with commas between; none: the file in traj_dir
  std::string history_format = "auto";       ///< or a name of history_formats()
  std::optional<std::string> history_group;  ///< names of groups, with commas between
  int64_t history_cache = 256;               ///< MiB
  int64_t window_stride = 1;
  int64_t window_margin = 0;
  double last_fraction = 1;
  bool sequence_packing = false;
  TaskWeights task_weights = TaskWeights::kWindows;
  bool normalize_observations = false;
  double reward_scale = 1;
  int64_t eval_windows = 2048;

  void declare(Section& section);
  /// Replaces what only histories of the grid families need by what those of any space do: all steps and
  /// streams, unless they are given.
  void take_all(bool steps_given, bool streams_given);

 private:
  void declare_any_space(Section& section);
};

}  // namespace adtrain
