#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <optional>

namespace adtrain {

/// What an agent observes: two coordinates, each 0 … grid_size − 1. Two coordinates and five actions are the
/// limits of today's history format and networks.
using Observation = std::array<int32_t, 2>;

/// One environment, of one task. All that happens in it follows from the task and the actions: histories are
/// checked by living them again.
class Environment {
 public:
  struct Outcome {
    Observation observation;  ///< what the step led to
    int32_t reward;
  };

  virtual ~Environment() = default;
  /// Starts an episode. Returns what is observed first, which is the same in each.
  virtual Observation reset() = 0;
  /// `action`: 0 … 4. Episodes do not end by themselves: after `horizon` steps reset() is called.
  virtual Outcome step(int32_t action) = 0;
};

/// What the configuration says of a family.
struct EnvironmentSettings {
  int64_t grid_size;  ///< 2 … 255
  int64_t horizon;    ///< steps of each episode
};

/// What holds where the configuration says nothing: the keys of the same names.
struct EnvironmentDefaults {
  int64_t horizon = 20;
  int64_t env_split_seed = 0;
  double train_env_ratio = 0.9;
};

/// A family of tasks, of which some are trained on and some held out. Immutable: threads call it at once.
class EnvironmentFamily {
 public:
  virtual ~EnvironmentFamily() = default;
  /// 1 at least.
  virtual int64_t task_count() const = 0;
  /// A new environment of task `task`, 0 … task_count() − 1; each is used by one thread at a time.
  virtual std::unique_ptr<Environment> make(int64_t task) const = 0;
  /// The return of an episode of the best policy that knows the task: what reports compare with.
  virtual double best_return(int64_t task) const = 0;
  /// The expected return of an episode of the uniformly random policy; none: it is measured.
  virtual std::optional<double> random_return(int64_t /*task*/) const { return std::nullopt; }
};

}  // namespace adtrain
