#pragma once

#include <vector>

#include "base/Random.h"
#include "data/HistorySet.h"

namespace adtrain {

/// Histories of random transitions, for tests that compare two ways of reading them.
inline HistorySet random_histories(int64_t histories, int64_t steps, uint64_t seed) {
  RandomStream random(seed);
  const auto cell = [&] { return static_cast<uint8_t>(random.below(9)); };
  std::vector<Transition> transitions(static_cast<size_t>(histories * steps));
  for (Transition& transition : transitions) {
    transition = {
        {cell(), cell()}, {cell(), cell()}, static_cast<uint8_t>(random.below(5)), random.uniform()};
  }
  return HistorySet(steps, std::move(transitions));
}

}  // namespace adtrain
