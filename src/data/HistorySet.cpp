#include "data/HistorySet.h"

#include <algorithm>
#include <utility>

#include <fmt/format.h>

#include "base/Error.h"
#include "base/Random.h"
#include "data/HistoryFile.h"

namespace adtrain {
namespace {

/// Says which setting asks for more than the file holds.
void check_fits(const std::filesystem::path& path, const HistoryFile& file,
                const HistorySelection& selection) {
  const auto check = [&](const char* what, int64_t held, int64_t wanted, const char* setting) {
    if (wanted <= held) return;
    throw DataError(fmt::format(
        "{} holds {} {}, {} are asked for; expected at most what the file holds: lower {}, or collect "
        "longer histories under another alg_seed",
        path.string(), held, what, wanted, setting));
  };
  check("steps a history", file.steps(), selection.steps, "train_source_timesteps");
  check("streams a task", file.streams(), selection.streams, "train_n_stream");
  check("tasks", file.tasks(), 1 + *std::max_element(selection.tasks.begin(), selection.tasks.end()),
        "grid_size, or name the family that the file was collected on (env)");
}

}  // namespace

HistorySet HistorySet::load(const std::filesystem::path& path, const HistorySelection& selection) {
  const HistoryFile file(path);
  check_fits(path, file, selection);
  std::vector<Transition> transitions;
  transitions.reserve(selection.tasks.size() * static_cast<size_t>(selection.streams * selection.steps));
  for (const int64_t task : selection.tasks) {
    const History history = file.read(task, selection.steps, selection.streams, selection.bounds);
    for (int64_t stream = 0; stream < selection.streams; ++stream) {
      for (int64_t step = 0; step < selection.steps; ++step) {
        const size_t i = history.at(step, stream);
        const auto small = [](int32_t value) { return static_cast<uint8_t>(value); };
        transitions.push_back({{small(history.states[2 * i]), small(history.states[2 * i + 1])},
                               {small(history.next_states[2 * i]), small(history.next_states[2 * i + 1])},
                               small(history.actions[i]),
                               history.rewards[i]});
      }
    }
  }
  return HistorySet(selection.steps, std::move(transitions));
}

HistorySet HistorySet::random(int64_t histories, int64_t steps, const HistoryBounds& bounds, uint64_t seed) {
  RandomStream stream(seed);
  const auto below = [&](int64_t bound) {
    return static_cast<uint8_t>(stream.below(static_cast<uint32_t>(bound)));
  };
  const auto cell = [&] { return below(bounds.grid_size); };
  std::vector<Transition> transitions(static_cast<size_t>(histories * steps));
  for (Transition& transition : transitions) {
    transition = {{cell(), cell()}, {cell(), cell()}, below(bounds.num_actions), stream.uniform()};
  }
  return HistorySet(steps, std::move(transitions));
}

HistorySet::HistorySet(int64_t steps, std::vector<Transition> transitions)
    : steps_(steps), transitions_(std::move(transitions)) {}

}  // namespace adtrain
