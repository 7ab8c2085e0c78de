#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <utility>

#include "adtrain/environment.h"
#include "environments/EnvironmentOptions.h"

namespace adtrain {

/// A cell of the grid, or a displacement.
struct Cell {
  int32_t x = 0;
  int32_t y = 0;
  bool operator==(const Cell&) const = default;
};

constexpr int64_t kActions = 5;

/// One task's definition.
struct Task {
  Cell start;
  Cell goal;
  /// Where set, key and goal pay once each, and the goal only at a later step than the key. Else every step
  /// that ends on the goal pays.
  std::optional<Cell> key;
  std::array<Cell, kActions> moves;  ///< of each action, before clipping to the room
};

/// A family of tasks in a square grid: observation (x, y); actions +x, −x, +y, −y and stay; an episode lasts
/// `horizon` steps and each reward is +1.
///
/// - darkroom: start in the middle; task i has its goal at (i ÷ grid, i mod grid).
/// - darkroompermuted: from (0, 0) to the opposite corner; in task i action a acts as the a-th entry of the
/// i-th
///   permutation of the actions in lexicographic order.
/// - darkkeytodoor: start in the middle; the digits of i to base `grid` are the key's x and y and the goal's
/// x and y.
///
/// A plug-in's family says itself what its tasks are: instead of task() it has environments.
///
/// A value: immutable, cheap to copy, safe to share between threads.
class TaskFamily {
 public:
  /// Throws ConfigError for an unknown family, and where a plug-in does not make one that has tasks.
  static TaskFamily of(const EnvironmentOptions& options);

  const std::string& name() const { return name_; }
  int64_t task_count() const;
  int64_t horizon() const { return horizon_; }
  int64_t grid_size() const { return grid_size_; }
  int64_t num_actions() const { return kActions; }

  /// `index` in 0 … task_count() − 1. Not of a plug-in's family.
  Task task(int64_t index) const;
  /// Null where the family is none of a plug-in's.
  const EnvironmentFamily* plugin() const { return plugin_.get(); }
  /// The return of an episode of the best policy that knows the task.
  double best_return(int64_t index) const;
  /// The expected return of an episode of the uniform random policy, exact: by dynamic programming over the
  /// probability of each cell. Where a plug-in does not know it, the mean of 1000 such episodes.
  double random_return(int64_t index) const;

 private:
  TaskFamily(Family family, std::string name, int64_t grid_size, int64_t horizon,
             std::shared_ptr<const EnvironmentFamily> plugin)
      : family_(family),
        name_(std::move(name)),
        grid_size_(grid_size),
        horizon_(horizon),
        plugin_(std::move(plugin)) {}

  Family family_;
  std::string name_;
  int64_t grid_size_;
  int64_t horizon_;
  std::shared_ptr<const EnvironmentFamily> plugin_;
};

}  // namespace adtrain
