#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>

#include "data/RecordedTask.h"
#include "environments/Space.h"

namespace adtrain {

/// Writes down what happens in environments of one task that step together: each is one history, of which the
/// first `streams` are kept. For one thread.
class TaskRecorder {
 public:
  TaskRecorder(const Space& observation, const Space& action, int64_t streams, int64_t steps);

  /// What is observed before the next step: rows of the space's type.
  void observe(std::span<const std::byte> observations);
  /// The step itself: the actions as they were played, and what they led to. All are of all environments.
  void step(std::span<const std::byte> actions, std::span<const double> rewards,
            std::span<const uint8_t> ended, std::span<const uint8_t> terminated);

  /// The mean return of the episodes that end in the last tenth of the histories; where none does, of the
  /// last whole episode of each history. Nothing where no episode ends.
  std::optional<double> final_return() const;
  /// To be called once, after the last step.
  RecordedTask take();

 private:
  void put(RecordedTask::Place column, std::span<const std::byte> rows);
  template <class Number>
  void put_number(RecordedTask::Place column, size_t stream, Number number);

  RecordedTask recorded_;
  int64_t step_ = 0;
};

}  // namespace adtrain
