#pragma once

#include <cstdint>
#include <string>

#include "config/Section.h"

namespace adtrain {

/// Whether learning histories are held in the memory of each GPU.
enum class HistoriesOnGpu { kAuto, kOn, kOff };

/// Which part of the learning histories is trained on, and how it is cut into samples.
struct DataOptions {
  std::string traj_dir = "histories";
  int64_t train_source_timesteps = 1000;
  int64_t train_n_stream = 100;
  int64_t episode_stride = 1;
  int64_t num_workers = 2;
  HistoriesOnGpu histories_on_gpu = HistoriesOnGpu::kAuto;

  void declare(Section& section);
};

}  // namespace adtrain
