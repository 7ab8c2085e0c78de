#pragma once

#include <cstdint>
#include <string>

#include "config/Section.h"

namespace adtrain {

/// Which part of the learning histories is trained on, and how it is cut into samples.
struct DataOptions {
  std::string traj_dir = "histories";
  int64_t train_source_timesteps = 1000;
  int64_t train_n_stream = 100;
  int64_t episode_stride = 1;
  int64_t num_workers = 2;

  void declare(Section& section);
};

}  // namespace adtrain
