#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "environments/TaskFamily.h"

namespace adtrain {

/// n environments of one family in lock-step, each with a task of its own. All episodes begin and end
/// together. Those of plug-ins are stepped one after the other; where one observes a cell outside the grid, a
/// step or reset throws DataError. For one thread at a time; spans stay valid until the next call of `step`
/// or `reset`.
class EnvironmentBatch {
 public:
  /// Starts an episode of each task; a task may occur several times.
  EnvironmentBatch(const TaskFamily& family, const std::vector<int64_t>& tasks);

  int64_t size() const { return static_cast<int64_t>(rewards_.size()); }

  /// Starts a new episode in all environments.
  void reset();
  /// (n, 2): what each agent observes now.
  std::span<const int32_t> states() const { return states_; }

  /// Steps all environments: actions (n), each in 0 … 4. At the horizon the next episode begins:
  /// `next_states` is then the last observation of the old one, `states` already the first of the new one.
  void step(std::span<const int32_t> actions);
  /// (n, 2): the observations that the last step led to.
  std::span<const int32_t> next_states() const { return next_states_; }
  /// (n): the last step's rewards.
  std::span<const int32_t> rewards() const { return rewards_; }
  /// Whether the last step ended the episode, which is the same for all environments.
  bool done() const { return done_; }

 private:
  void step_plugins(std::span<const int32_t> actions);
  void put(std::vector<int32_t>& pairs, size_t index, const Observation& observation) const;
  void move(std::span<const int32_t> actions);
  void pay();

  int32_t grid_size_;
  int64_t horizon_;
  bool pays_once_;  ///< the family has keys
  int64_t episode_step_ = 0;
  bool done_ = false;
  // Pairs are (n, 2), flags (n) and 0 or 1.
  std::vector<int32_t> starts_, goals_, keys_, moves_ /* (n, actions, 2) */;
  std::vector<int32_t> states_, next_states_, rewards_;
  std::vector<int32_t> has_key_, goal_open_;
  // Of a plug-in's family; without any, where it is none.
  std::string family_name_;
  std::vector<int64_t> tasks_;
  std::vector<std::unique_ptr<Environment>> plugins_;
};

}  // namespace adtrain
