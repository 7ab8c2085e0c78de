#include "data/History.h"

#include <algorithm>

#include "data/LateReturns.h"

namespace adtrain {
namespace {

/// Keeps the first `kept` of every `length` values.
template <class Value>
void keep_leading(std::vector<Value>& values, size_t length, size_t kept) {
  auto to = values.begin();
  for (auto row = values.begin(); row != values.end(); row += static_cast<std::ptrdiff_t>(length)) {
    to = std::copy_n(row, kept, to);
  }
  values.erase(to, values.end());
}

/// Of each part the `each` values of a stream in turn. Every part has `count` values.
template <class Value>
std::vector<Value> in_turn(const std::vector<History>& parts, std::vector<Value> History::*column,
                           size_t each) {
  const size_t count = (parts.front().*column).size();
  std::vector<Value> values;
  values.reserve(count * parts.size());
  for (size_t first = 0; first < count; first += each) {
    for (const History& part : parts) {
      const auto from = (part.*column).begin() + static_cast<std::ptrdiff_t>(first);
      values.insert(values.end(), from, from + static_cast<std::ptrdiff_t>(each));
    }
  }
  return values;
}

}  // namespace

History History::interleaved(const std::vector<History>& parts) {
  History history;
  history.steps = parts.front().steps;
  history.streams = parts.front().streams * static_cast<int64_t>(parts.size());
  history.states = in_turn(parts, &History::states, 2);
  history.actions = in_turn(parts, &History::actions, 1);
  history.rewards = in_turn(parts, &History::rewards, 1);
  history.next_states = in_turn(parts, &History::next_states, 2);
  history.dones = in_turn(parts, &History::dones, 1);
  history.compress_markers = in_turn(parts, &History::compress_markers, 1);
  return history;
}

void History::keep_streams(int64_t count) {
  if (count >= streams) return;
  const auto all = static_cast<size_t>(streams), kept = static_cast<size_t>(count);
  keep_leading(states, 2 * all, 2 * kept);
  keep_leading(actions, all, kept);
  keep_leading(rewards, all, kept);
  keep_leading(next_states, 2 * all, 2 * kept);
  keep_leading(dones, all, kept);
  keep_leading(compress_markers, all, kept);
  streams = count;
}

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

double History::late_return() const {
  LateReturns returns(steps);
  for (int64_t stream = 0; stream < streams; ++stream) {
    for (int64_t step = 0; step < steps; ++step)
      returns.add(rewards[at(step, stream)], dones[at(step, stream)] != 0);
  }
  return returns.mean().value_or(final_return());
}

}  // namespace adtrain
