#include "environments/EnvironmentBatch.h"

#include <algorithm>

#include <fmt/format.h>

#include "base/Error.h"

namespace adtrain {
namespace {

/// 1 where both hold; without a branch, so that the loop over environments is vectorised.
int32_t both(int32_t a, int32_t b) {
  return a & b;
}

}  // namespace

EnvironmentBatch::EnvironmentBatch(const TaskFamily& family, const std::vector<int64_t>& tasks)
    : grid_size_(static_cast<int32_t>(family.grid_size())),
      horizon_(family.horizon()),
      pays_once_(family.plugin() == nullptr && !tasks.empty() && family.task(tasks[0]).key.has_value()),
      rewards_(tasks.size()),
      has_key_(tasks.size()),
      goal_open_(tasks.size()),
      family_name_(family.name()) {
  if (family.plugin() != nullptr) {
    tasks_ = tasks;
    for (const int64_t index : tasks) plugins_.push_back(family.plugin()->make(index));
    states_.resize(2 * tasks.size());
    reset();
    next_states_ = states_;
    return;
  }
  const auto append = [](std::vector<int32_t>& pairs, Cell cell) {
    pairs.push_back(cell.x);
    pairs.push_back(cell.y);
  };
  for (const int64_t index : tasks) {
    const Task task = family.task(index);
    append(starts_, task.start);
    append(goals_, task.goal);
    append(keys_, task.key.value_or(Cell{-1, -1}));
    for (const Cell displacement : task.moves) append(moves_, displacement);
  }
  next_states_ = starts_;
  reset();
}

void EnvironmentBatch::reset() {
  if (plugins_.empty()) states_ = starts_;
  for (size_t i = 0; i < plugins_.size(); ++i) put(states_, i, plugins_[i]->reset());
  std::fill(has_key_.begin(), has_key_.end(), pays_once_ ? 0 : 1);
  std::fill(goal_open_.begin(), goal_open_.end(), 1);
  episode_step_ = 0;
}

void EnvironmentBatch::step(std::span<const int32_t> actions) {
  if (plugins_.empty()) {
    move(actions);
    pay();
  } else {
    step_plugins(actions);
  }
  done_ = ++episode_step_ == horizon_;
  if (done_) {
    reset();
  } else {
    states_ = next_states_;
  }
}

void EnvironmentBatch::step_plugins(std::span<const int32_t> actions) {
  for (size_t i = 0; i < plugins_.size(); ++i) {
    const Environment::Outcome outcome = plugins_[i]->step(actions[i]);
    put(next_states_, i, outcome.observation);
    rewards_[i] = outcome.reward;
  }
}

void EnvironmentBatch::put(std::vector<int32_t>& pairs, size_t index, const Observation& observation) const {
  const auto [x, y] = observation;
  if (x < 0 || y < 0 || x >= grid_size_ || y >= grid_size_) {
    throw DataError(fmt::format(
        "Task {} of the plug-in's family {} observed ({}, {}); expected coordinates from 0 to {}: raise "
        "grid_size, or correct the plug-in",
        tasks_[index], family_name_, x, y, grid_size_ - 1));
  }
  pairs[2 * index] = x;
  pairs[2 * index + 1] = y;
}

void EnvironmentBatch::move(std::span<const int32_t> actions) {
  const int32_t last = grid_size_ - 1;
  for (size_t i = 0; i < actions.size(); ++i) {
    const int32_t* displacement = &moves_[(i * kActions + static_cast<size_t>(actions[i])) * 2];
    next_states_[2 * i] = std::clamp(states_[2 * i] + displacement[0], 0, last);
    next_states_[2 * i + 1] = std::clamp(states_[2 * i + 1] + displacement[1], 0, last);
  }
}

void EnvironmentBatch::pay() {
  const int32_t once = pays_once_ ? 1 : 0;
  for (size_t i = 0; i < rewards_.size(); ++i) {
    const int32_t x = next_states_[2 * i], y = next_states_[2 * i + 1];
    const int32_t on_goal = both(x == goals_[2 * i], y == goals_[2 * i + 1]);
    const int32_t on_key = both(x == keys_[2 * i], y == keys_[2 * i + 1]);
    const int32_t reached = on_goal & has_key_[i] & goal_open_[i];  // with the key from an earlier step
    const int32_t found = on_key & (1 - has_key_[i]);
    rewards_[i] = reached + found;
    has_key_[i] |= found;
    goal_open_[i] &= 1 - (reached & once);
  }
}

}  // namespace adtrain
