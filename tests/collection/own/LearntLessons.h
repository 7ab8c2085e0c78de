#pragma once

#include <string>

#include "collection/own/OwnPpo.h"
#include "environments/WorkerModules.h"

namespace adtrain {

/// A worker of tests/environments/worker/lessons.py, whose environments step together.
inline WorkerOptions lessons(const std::string& function, int64_t workers = 1) {
  WorkerOptions options = worker_of("lessons:" + function);
  options.env_overlap = false;
  options.env_workers = workers;
  return options;
}

/// A second of learning.
inline OwnPpoSettings short_learning(int64_t total_steps, int64_t kept_streams = 8) {
  return {.ppo = {.streams = 8,
                  .rollout_steps = 16,
                  .batch_size = 32,
                  .epochs = 8,
                  .total_steps = total_steps,
                  .learning_rate = 3e-3,
                  .discount = 0.9,
                  .gae_lambda = 0.95,
                  .clip_range = 0.2,
                  .entropy_coefficient = 0,
                  .value_coefficient = 0.5,
                  .max_grad_norm = 0.5},
          .units = 32,
          .normalize_observations = true,
          .kept_streams = kept_streams};
}

}  // namespace adtrain
