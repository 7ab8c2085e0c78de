#pragma once

#include <cstdint>
#include <span>

namespace adtrain {

/// n environments that step together, each with a task of its own, as a rollout plays them: two coordinates
/// are observed, one of five actions is chosen. An episode that ends is followed by the next on the same
/// step; episodes of different environments may end at different times. For one thread at a time; spans stay
/// valid until the next call of begin_step.
class SteppedEnvironments {
 public:
  virtual ~SteppedEnvironments() = default;

  virtual int64_t size() const = 0;
  /// (n, 2): what each agent observes now.
  virtual std::span<const int32_t> states() const = 0;

  /// Steps all environments: actions (n), each in 0 … 4. Where they are elsewhere they are only asked to, so
  /// that something else can be done meanwhile; finish_step() waits for them.
  virtual void begin_step(std::span<const int32_t> actions) = 0;
  virtual void finish_step() = 0;
  /// (n, 2): the observations that the last step led to: where it ended an episode, that episode's last one.
  virtual std::span<const int32_t> next_states() const = 0;
  /// (n): the last step's rewards.
  virtual std::span<const double> rewards() const = 0;
  /// (n): 1 where the last step ended an episode.
  virtual std::span<const uint8_t> ended() const = 0;
};

}  // namespace adtrain
