#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <vector>

#include "collection/CollectionOptions.h"
#include "collection/gpu/GpuPpo.h"
#include "data/History.h"
#include "environments/TaskFamily.h"

namespace adtrain {

/// The learning histories of a batch of tasks, in the GPU's compact format.
class GpuHistories {
 public:
  GpuHistories(const GpuProblem& problem, int64_t capacity);

  /// The history of the index-th task of the batch.
  History history(size_t index) const;

 private:
  friend class GpuLearner;

  GpuProblem problem_;
  PinnedBytes bytes_;
};

/// Learns batches of tasks on the GPU. For one thread.
class GpuLearner {
 public:
  /// Throws EnvironmentError where the GPU cannot run it, which says why.
  GpuLearner(const TaskFamily& family, const CollectionOptions& options, const PpoSettings& ppo);

  const GpuProblem& problem() const { return problem_; }
  /// The most tasks of a batch.
  int64_t tasks_at_once() const { return tasks_at_once_; }

  /// Learns tasks completely. Returns false, without histories, where `stop`, called before every rollout,
  /// returned true.
  bool learn(std::span<const int64_t> tasks, const std::function<bool()>& stop, GpuHistories& histories);

 private:
  TaskFamily family_;
  int64_t seed_;
  int64_t threads_;  ///< for drawing the initial weights
  GpuProblem problem_;
  int64_t tasks_at_once_;
  GpuPpo ppo_;
};

/// A collection's problem for the GPU.
GpuProblem gpu_problem(const TaskFamily& family, const CollectionOptions& options, const PpoSettings& ppo);

}  // namespace adtrain
