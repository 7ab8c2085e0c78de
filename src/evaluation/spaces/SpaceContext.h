#pragma once

#include <cstdint>

#include <ATen/core/Tensor.h>

#include "data/Batch.h"
#include "environments/TaskSpaces.h"

namespace adtrain {

/// What makes numbers of n learners' environments those that a network was trained on.
struct SpaceScale {
  at::Tensor reward;  ///< float32 (n): what rewards are multiplied by; undefined: they are as they are
  /// float32 (n, …): what observations are normalised by, as in Batch; undefined where they are not.
  at::Tensor state_mean, state_deviation;
};

/// What n learners have seen in environments of any space: the last steps, across episodes. All rows grow
/// together until the window is full; then it slides, and what came before its first step stays known, as in
/// training.
class SpaceContext {
 public:
  /// `steps`: the most of a window, the present one, whose action is asked for, among them.
  SpaceContext(int64_t rows, int64_t steps, const TaskSpaces& spaces, SpaceScale scale);

  /// Begins a step: `states` (n, …) of any type, `begins` (n), nonzero where an episode begins.
  void observe(const at::Tensor& states, const at::Tensor& begins);
  /// Rows of any space whose last step is the present one; its action and reward are zeros. They are views
  /// that the next call changes.
  Batch batch() const;
  /// The same of the present step alone.
  Batch newest() const;
  /// Ends the step: `actions` (n, …) as they were played, `rewards` (n) as the environments gave them.
  void complete(const at::Tensor& actions, const at::Tensor& rewards);

 private:
  /// The last `count` steps.
  Batch last(int64_t count) const;
  void make_room();

  int64_t steps_;
  SpaceScale scale_;
  /// (n, capacity, …): columns 0 and on are a window and what came before it. Capacity is some windows, so
  /// that rows are seldom moved to the front.
  at::Tensor states_, actions_, rewards_, begins_;
  int64_t first_ = 1;   ///< the window's first column; the one before it is the step before
  int64_t length_ = 0;  ///< steps in the window
};

}  // namespace adtrain
