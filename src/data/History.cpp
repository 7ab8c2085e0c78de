#include "data/History.h"

namespace adtrain {

bool History::next_states_are_reset() const {
  for (int64_t step = 0; step + 1 < steps; ++step) {
    for (int64_t stream = 0; stream < streams; ++stream) {
      const size_t now = at(step, stream), next = at(step + 1, stream);
      const bool same =
          next_states[2 * now] == states[2 * next] && next_states[2 * now + 1] == states[2 * next + 1];
      if (dones[now] != 0 && !same) return false;
    }
  }
  return true;
}

double History::final_return() const {
  double total = 0;
  for (int64_t stream = 0; stream < streams; ++stream) {
    int64_t end = steps;
    while (end > 0 && dones[at(end - 1, stream)] == 0) --end;
    if (end == 0) end = steps;
    int64_t step = end - 1;
    do {
      total += rewards[at(step, stream)];
    } while (--step >= 0 && dones[at(step, stream)] == 0);
  }
  return total / static_cast<double>(streams);
}

}  // namespace adtrain
