#pragma once

#include "base/Random.h"
#include "data/History.h"

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

}  // namespace adtrain
