#pragma once

#include <algorithm>
#include <vector>

#include "base/Random.h"
#include "data/History.h"
#include "environments/EnvironmentBatch.h"

namespace adtrain {

/// A history of random but valid transitions in a room of `grid` cells a side, whose episodes last `horizon`
/// steps and whose next states are the following states, as in the Python projects' files.
inline History random_history(int64_t steps, int64_t streams, int64_t horizon, uint64_t seed,
                              uint32_t grid = 9) {
  RandomStream random(seed);
  History history;
  history.steps = steps;
  history.streams = streams;
  const auto cells = static_cast<size_t>(steps * streams);
  const auto pair_row = static_cast<size_t>(streams) * 2;
  std::vector<int32_t> coordinates(cells * 2 + pair_row);
  for (int32_t& coordinate : coordinates) coordinate = static_cast<int32_t>(random.below(grid));
  history.states.assign(coordinates.begin(), coordinates.end() - static_cast<std::ptrdiff_t>(pair_row));
  history.next_states.assign(coordinates.begin() + static_cast<std::ptrdiff_t>(pair_row), coordinates.end());
  for (size_t i = 0; i < cells; ++i) {
    history.actions.push_back(static_cast<int32_t>(random.below(5)));
    history.rewards.push_back(static_cast<float>(random.below(3)));
    const auto step = static_cast<int64_t>(i) / streams;
    history.dones.push_back((step + 1) % horizon == 0);
  }
  return history;
}

/// What random actions live through in a task of a family, with the state after the reset as an episode's
/// last next state, or with its last observation (`terminal`).
inline History lived_history(const TaskFamily& family, int64_t task, int64_t steps, int64_t streams,
                             uint64_t seed, bool terminal = false) {
  RandomStream random(seed);
  EnvironmentBatch environments(family, std::vector<int64_t>(static_cast<size_t>(streams), task));
  History history;
  history.steps = steps;
  history.streams = streams;
  const auto append = [](auto& column, const auto& row) {
    column.insert(column.end(), row.begin(), row.end());
  };
  std::vector<int32_t> actions(static_cast<size_t>(streams));
  for (int64_t step = 0; step < steps; ++step) {
    append(history.states, environments.states());
    std::generate(actions.begin(), actions.end(),
                  [&random] { return static_cast<int32_t>(random.below(5)); });
    append(history.actions, actions);
    environments.step(actions);
    append(history.rewards, environments.rewards());
    append(history.next_states, terminal ? environments.next_states() : environments.states());
    history.dones.insert(history.dones.end(), actions.size(), static_cast<uint8_t>(environments.done()));
  }
  return history;
}

}  // namespace adtrain
