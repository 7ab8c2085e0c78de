#include "data/HistorySet.h"

#include <bit>
#include <utility>

#include <fmt/format.h>

#include "base/Random.h"
#include "base/SharedBytes.h"
#include "data/HistorySetReader.h"

namespace adtrain {

HistorySet HistorySet::load(const std::filesystem::path& file, const HistorySelection& selection) {
  const HistorySetReader reader(file, selection);
  return reader.read(own_bytes(reader.bytes()));
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
    : steps_(steps), count_(transitions.size()) {
  const auto owner = std::make_shared<const std::vector<Transition>>(std::move(transitions));
  first_ = {owner, owner->data()};
}

std::string HistorySet::digest() const {
  // A multiplication and a shift for each half of a transition, as there may be hundreds of millions.
  constexpr uint64_t kMultiplier = 0x9e3779b97f4a7c15ULL;
  uint64_t hash = mix_bits(static_cast<uint64_t>(steps_)) ^ static_cast<uint64_t>(count_);
  const auto take = [&hash](uint64_t value) {
    hash = (hash ^ value) * kMultiplier;
    hash ^= hash >> 32;
  };
  for (const Transition& transition : transitions()) {
    take(uint64_t{transition.state[0]} | uint64_t{transition.state[1]} << 8 |
         uint64_t{transition.next_state[0]} << 16 | uint64_t{transition.next_state[1]} << 24 |
         uint64_t{transition.action} << 32);
    take(std::bit_cast<uint32_t>(transition.reward));
  }
  return fmt::format("{:016x}", mix_bits(hash));
}

}  // namespace adtrain
