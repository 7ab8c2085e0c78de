#pragma once

#include <memory>
#include <vector>

#include "environments/SteppedEnvironments.h"
#include "environments/worker/WorkerBatch.h"
#include "environments/worker/WorkerHello.h"

namespace adtrain {

/// A worker's environments whose spaces are those of today's networks: two coordinates and one choice.
class WorkerGrid final : public SteppedEnvironments {
 public:
  /// Takes a batch that has been reset. `hello` is its pool's, whose spaces are MultiDiscrete((2,)) and
  /// Discrete, from 0 on, of any type of whole numbers.
  WorkerGrid(std::unique_ptr<WorkerBatch> batch, const WorkerHello& hello);

  int64_t size() const override { return batch_->size(); }
  std::span<const int32_t> states() const override { return states_; }
  void begin_step(std::span<const int32_t> actions) override;
  void finish_step() override;
  std::span<const int32_t> next_states() const override { return next_states_; }
  std::span<const double> rewards() const override { return batch_->rewards(); }
  std::span<const uint8_t> ended() const override { return batch_->ended(); }

 private:
  std::unique_ptr<WorkerBatch> batch_;
  ElementType observation_type_, action_type_;
  std::vector<int32_t> states_, next_states_;
};

}  // namespace adtrain
