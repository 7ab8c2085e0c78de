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

/// Proximal policy optimisation of many tasks at once on the current GPU, the mathematics being Ppo's: each
/// task has a thread block, which holds its networks and their optimizer in shared memory and registers. In
/// 32-bit floating-point numbers; deterministic on one kind of GPU, and a task's result does not depend on
/// the others.
///
/// Calls return when the GPU has done its part; they throw EnvironmentError where it fails. For one thread.
class GpuPpo {
 public:
  /// What keeps the current GPU from `problem`, in words; nothing where it can do it.
  static std::optional<std::string> objection(const GpuProblem& problem);
  /// As many tasks as are worth being learnt at once.
  static int64_t tasks_at_once(const GpuProblem& problem);

  /// Makes room for `capacity` tasks.
  GpuPpo(const GpuProblem& problem, int64_t capacity);
  ~GpuPpo();

  /// Begins tasks anew, with the weights (tasks, gpu::kParameters).
  void begin(const std::vector<GpuTask>& tasks, const std::vector<float>& weights);
  /// Makes the rollout `number`, 0 at first. It is part of the history.
  void roll_out(int64_t number);
  /// Learns from the last rollout, before the rollout `number`.
  void update(int64_t number);

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
