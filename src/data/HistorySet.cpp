#include "data/HistorySet.h"

#include <bit>
#include <future>
#include <utility>

#include <fmt/format.h>

#include "base/Error.h"
#include "base/NumberRanges.h"
#include "base/Random.h"
#include "base/Text.h"
#include "data/HistoryFile.h"
#include "data/HistoryReplay.h"

namespace adtrain {
namespace {

/// Throws where a setting asks for more than the file holds, and names it.
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
  const NumberRanges missing = NumberRanges::of(selection.tasks).without(file.tasks());
  if (missing.empty()) return;
  throw DataError(fmt::format(
      "{} holds the tasks {}, and {} are asked for too; expected those that the file holds: name them "
      "(tasks, train_tasks), name the family that the file was collected on (env, grid_size), or collect all "
      "tasks anew with `adtrain collect --overwrite`, which replaces the file",
      path.string(), abridged(file.tasks().text()), abridged(missing.text())));
}

}  // namespace

HistorySet HistorySet::load(const std::filesystem::path& path, const HistorySelection& selection) {
  const HistoryFile file(path);
  check_collected_with(path, file.settings(), selection.settings);
  check_fits(path, file, selection);
  const HistoryBounds bounds = {selection.family.grid_size(), selection.family.num_actions()};
  std::vector<Transition> transitions;
  transitions.reserve(selection.tasks.size() * static_cast<size_t>(selection.streams * selection.steps));
  // While one task is checked and transposed, the next one is read.
  const auto begin_reading = [&](size_t index) {
    return std::async(std::launch::async, [&, index] {
      return file.read(selection.tasks[index], selection.steps, selection.streams, bounds);
    });
  };
  std::future<History> reading = begin_reading(0);
  for (size_t index = 0; index < selection.tasks.size(); ++index) {
    const History history = reading.get();
    if (index + 1 < selection.tasks.size()) reading = begin_reading(index + 1);
    check_by_replay(path.string(), selection.tasks[index], history, selection.family);
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
  HistorySet set(selection.steps, std::move(transitions));
  const auto checksum = file.settings().find(kContentChecksum);
  if (checksum != file.settings().end()) set.file_checksum_ = checksum->second;
  return set;
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

std::string HistorySet::digest() const {
  // A multiplication and a shift for each half of a transition, as there may be hundreds of millions.
  constexpr uint64_t kMultiplier = 0x9e3779b97f4a7c15ULL;
  uint64_t hash = mix_bits(static_cast<uint64_t>(steps_)) ^ static_cast<uint64_t>(transitions_.size());
  const auto take = [&hash](uint64_t value) {
    hash = (hash ^ value) * kMultiplier;
    hash ^= hash >> 32;
  };
  for (const Transition& transition : transitions_) {
    take(uint64_t{transition.state[0]} | uint64_t{transition.state[1]} << 8 |
         uint64_t{transition.next_state[0]} << 16 | uint64_t{transition.next_state[1]} << 24 |
         uint64_t{transition.action} << 32);
    take(std::bit_cast<uint32_t>(transition.reward));
  }
  return fmt::format("{:016x}", mix_bits(hash));
}

}  // namespace adtrain
