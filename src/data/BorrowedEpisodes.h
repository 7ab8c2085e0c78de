#pragma once

#include <cstdint>

#include "base/Random.h"
#include "data/Transition.h"

namespace adtrain {

/// Episodes of other histories that take the place of a window's first ones, as what was tried in vain
/// before: what was seen and done in them, without rewards. Each of them keeps away from the cell at which
/// the window's task pays first, so that it could have happened in this task. The choice is a function of the
/// sample's number. Only for tasks that differ in their rewards alone. Borrows its arrays. A value; works in
/// CUDA kernels too.
struct BorrowedEpisodes {
  const Transition* histories = nullptr;      ///< (histories, steps)
  const uint8_t* paying_cells = nullptr;      ///< (tasks, 2)
  int64_t count = 0, steps = 0, streams = 0;  ///< histories, their length, how many of them each task has
  int64_t horizon = 0;
  float share = 0;  ///< of the windows that begin with such episodes

  static constexpr int64_t kMostSlots = 32;  ///< episodes of a window, of which parts count as whole

  constexpr bool any() const { return share > 0; }

  /// Episodes that the window of `length` steps from `start` on touches.
  constexpr int64_t slots(int64_t start, int64_t length) const {
    return (start % horizon + length + horizon - 1) / horizon;
  }
  /// How many of a sample's `slots` are to be borrowed: the last one never is.
  constexpr int64_t wanted(int64_t sample, int64_t slots) const {
    RandomStream random(seed_of(kSeed, sample));
    if (slots < 2 || random.uniform() >= share) return 0;
    return 1 + random.below(static_cast<uint32_t>(slots - 1));
  }
  /// The first transition of the episode for a slot of a sample of this history; null where none was found.
  constexpr const Transition* episode(int64_t sample, int64_t slot, int64_t history) const {
    constexpr int kTries = 16;
    RandomStream random(seed_of(kSeed, sample, slot));
    const uint8_t* cell = paying_cells + 2 * (history / streams);
    for (int attempt = 0; attempt < kTries; ++attempt) {
      const int64_t from = random.below(static_cast<uint32_t>(count));
      const int64_t number = random.below(static_cast<uint32_t>(steps / horizon));
      const Transition* first = histories + from * steps + number * horizon;
      if (keeps_away(first, cell)) return first;
    }
    return nullptr;
  }

 private:
  static constexpr uint64_t kSeed = 0xb0440;

  static constexpr int distance(const uint8_t* a, const uint8_t* b) {
    const int x = a[0] - b[0], y = a[1] - b[1];
    return (x < 0 ? -x : x) + (y < 0 ? -y : y);
  }
  /// Where the last step of an episode led is not known from its next state, which may be that after the
  /// reset.
  constexpr bool keeps_away(const Transition* episode, const uint8_t* cell) const {
    for (int64_t step = 0; step < horizon; ++step) {
      if (distance(episode[step].state, cell) == 0) return false;
    }
    return distance(episode[horizon - 1].state, cell) > 1;
  }
};

}  // namespace adtrain
