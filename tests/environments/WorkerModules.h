#pragma once

#include <cstdlib>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "base/Error.h"
#include "environments/worker/WorkerBatch.h"
#include "environments/worker/WorkerOptions.h"
#include "environments/worker/WorkerPool.h"
#include "support/Process.h"
#include "support/Python.h"

namespace adtrain {

/// A worker of a function of tests/environments/worker, under the tests' Python.
inline WorkerOptions worker_of(const std::string& function) {
  setenv("PYTHONPATH", ADTRAIN_SOURCE_DIR "/tests/environments/worker", 1);
  setenv("PYTHONDONTWRITEBYTECODE", "1", 1);
  WorkerOptions options;
  options.env_worker = function;
  options.env_python = ADTRAIN_PYTHON;
  return options;
}

inline bool has_gymnasium() {
  static const bool has = has_python_package("gymnasium.vector; gymnasium.vector.AutoresetMode");
  return has;
}

/// Places of these tasks, with their numbers as seeds.
inline std::vector<PlaceOrder> places_of(const std::vector<int64_t>& tasks) {
  std::vector<PlaceOrder> places;
  for (const int64_t task : tasks) places.push_back({task, 1000 + std::ssize(places)});
  return places;
}

/// Tests that start workers.
class WorkerTest : public testing::Test {
 protected:
  void SetUp() override {
    if (!has_gymnasium()) GTEST_SKIP() << "no gymnasium 1.1 or newer in " << ADTRAIN_PYTHON;
  }
};

/// What ends an attempt to play ten steps of the tasks "sound" and "wrong".
struct Ended {
  ExitCode code = ExitCode::kDone;
  std::string message;
};

inline Ended play(const WorkerOptions& options) {
  try {
    WorkerPool pool(options, {});
    const auto batches = pool.make(places_of({0, 0, 1}));
    for (int step = 0; step < 10; ++step) {
      for (const auto& batch : batches) batch->begin_step();
      for (const auto& batch : batches) batch->finish_step();
    }
  } catch (const Error& error) {
    return {error.exit_code(), error.what()};
  }
  return {};
}

inline Ended play(const std::string& function) {
  WorkerOptions options = worker_of(function);
  options.env_overlap = false;
  return play(options);
}

/// Where the environments of faults.py go wrong, at the third place.
inline const std::string kWhereItIsWrong = "task 1 (wrong), place 2, episode 2, step 3";

}  // namespace adtrain
