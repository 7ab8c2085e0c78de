#pragma once

#include <cstdint>
#include <functional>
#include <memory>
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
  /// For `capacity` tasks with so many policies each.
  GpuHistories(const GpuProblem& problem, int64_t capacity, int64_t policies);

  /// The histories of the policies of the index-th task of the batch.
  std::vector<History> histories(size_t index) const;

 private:
  friend class GpuLearner;

  History history(size_t learner) const;

  GpuProblem problem_;
  int64_t policies_;
  PinnedBytes bytes_;
};

/// Learns batches of tasks on the GPU. For one thread.
class GpuLearner {
 public:
  /// Throws EnvironmentError where the GPU cannot run it, which says why.
  GpuLearner(const TaskFamily& family, const CollectionOptions& options, const PpoSettings& ppo);

  /// Memory for the histories of a batch.
  std::unique_ptr<GpuHistories> make_histories() const {
    return std::make_unique<GpuHistories>(problem_, tasks_at_once_, options_.source_policies);
  }
  /// The most tasks of a batch.
  int64_t tasks_at_once() const { return tasks_at_once_; }

  /// Learns tasks completely. Returns false, without histories, where `stop`, called before every rollout,
  /// returned true. Throws NonFiniteError, when all have been learnt, where a task's policy diverged.
  bool learn(std::span<const int64_t> tasks, const std::function<bool()>& stop, GpuHistories& histories);

 private:
  void check_soundness(std::span<const int64_t> tasks) const;

  TaskFamily family_;
  CollectionOptions options_;
  GpuProblem problem_;
  int64_t tasks_at_once_;
  GpuPpo ppo_;
};

/// A collection's problem for the GPU.
GpuProblem gpu_problem(const TaskFamily& family, const CollectionOptions& options, const PpoSettings& ppo);

}  // namespace adtrain
