#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "collection/gpu/GpuProblem.h"
#include "collection/gpu/TaskMemory.h"

namespace adtrain {

/// Host memory that the GPU copies into at full speed. Throws EnvironmentError where there is none.
class PinnedBytes {
 public:
  explicit PinnedBytes(size_t size);
  ~PinnedBytes();
  PinnedBytes(const PinnedBytes&) = delete;
  PinnedBytes& operator=(const PinnedBytes&) = delete;

  uint8_t* data() { return data_; }
  const uint8_t* data() const { return data_; }

 private:
  uint8_t* data_ = nullptr;
};

/// Proximal policy optimisation of many tasks at once on the current GPU, with Ppo's mathematics. Each task
/// has a thread block, which holds its networks and their optimizer in shared memory and registers. It
/// computes in fp32 and is deterministic on one kind of GPU; a task's result does not depend on the others.
///
/// Calls return when the GPU has finished; they throw EnvironmentError where it fails. For one thread.
class GpuPpo {
 public:
  /// Why the current GPU cannot run `problem`; nothing where it can.
  static std::optional<std::string> objection(const GpuProblem& problem);
  /// The number of tasks that should be learnt at once.
  static int64_t tasks_at_once(const GpuProblem& problem);
  /// The number of tasks that the current GPU's free memory has room for.
  static int64_t room_for(const GpuProblem& problem);

  /// Allocates memory for `capacity` tasks.
  GpuPpo(const GpuProblem& problem, int64_t capacity);
  ~GpuPpo();

  /// Starts tasks with the weights (tasks, gpu::kParameters).
  void begin(const std::vector<GpuTask>& tasks, const std::vector<float>& weights);
  /// Runs rollout `number`, from 0. It is part of the history.
  void roll_out(int64_t number);
  /// Learns from the last rollout, before the rollout `number`.
  void update(int64_t number);

  /// For each task the number of rollouts, from the first, whose networks gave finite numbers for all states.
  std::vector<int32_t> sound_rollouts() const;
  /// Copies the histories of all tasks, kBytesOfTransition · kept_steps() bytes each.
  void histories(uint8_t* to) const;

  // For tests: what a task's round of updates starts from and ends with.
  void set_samples(const std::vector<gpu::Sample>& samples);
  gpu::NetworkState networks(int64_t task) const;

 private:
  struct Arrays;

  GpuProblem problem_;
  int tasks_ = 0;
  std::unique_ptr<Arrays> arrays_;
};

}  // namespace adtrain
