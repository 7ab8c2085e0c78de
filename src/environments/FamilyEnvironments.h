#pragma once

#include <vector>

#include "environments/EnvironmentBatch.h"
#include "environments/SteppedEnvironments.h"

namespace adtrain {

/// A family's own environments, in this process; all episodes end together.
class FamilyEnvironments final : public SteppedEnvironments {
 public:
  FamilyEnvironments(const TaskFamily& family, const std::vector<int64_t>& tasks)
      : batch_(family, tasks), rewards_(tasks.size()), ended_(tasks.size()) {}

  int64_t size() const override { return batch_.size(); }
  std::span<const int32_t> states() const override { return batch_.states(); }
  void begin_step(std::span<const int32_t> actions) override {
    batch_.step(actions);
    rewards_.assign(batch_.rewards().begin(), batch_.rewards().end());
    ended_.assign(ended_.size(), batch_.done() ? 1 : 0);
  }
  void finish_step() override {}
  std::span<const int32_t> next_states() const override { return batch_.next_states(); }
  std::span<const double> rewards() const override { return rewards_; }
  std::span<const uint8_t> ended() const override { return ended_; }

 private:
  EnvironmentBatch batch_;
  std::vector<double> rewards_;
  std::vector<uint8_t> ended_;
};

}  // namespace adtrain
