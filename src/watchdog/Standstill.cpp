#include "watchdog/Standstill.h"

#include <algorithm>
#include <cstdint>
#include <string>

#include <fmt/format.h>

#include "base/NumberRanges.h"
#include "base/Text.h"

namespace adtrain {
namespace {

std::string test_and_go_on() {
  return "test the network (`adtrain test` by the same launcher) and the GPUs (`nvidia-smi`, `dmesg`), "
         "then " +
         Activity::of_this_process().to_go_on();
}

bool same_place(const ActivityStatus& one, const ActivityStatus& other) {
  return one.waits_in == other.waits_in && one.step == other.step;
}

bool is_known(const StandingRank& rank) {
  return !rank.doing.waits_in.empty();
}

/// "ranks 0-2: training after step 12, waiting in an all-reduce for 9.0 s to 10.0 s; rank 3: …".
std::string listed(const std::vector<StandingRank>& ranks) {
  std::vector<std::string> groups;
  std::vector<bool> done(ranks.size());
  for (size_t i = 0; i < ranks.size(); ++i) {
    if (done[i]) continue;
    std::vector<int64_t> numbers;
    ActivityStatus shortest = ranks[i].doing;
    double longest = 0;
    for (size_t k = i; k < ranks.size(); ++k) {
      const ActivityStatus& doing = ranks[k].doing;
      if (!same_place(doing, ranks[i].doing) || doing.phase != ranks[i].doing.phase) continue;
      done[k] = true;
      numbers.push_back(ranks[k].who.rank);
      shortest.seconds = std::min(shortest.seconds, doing.seconds);
      longest = std::max(longest, doing.seconds);
    }
    const std::string until = human_duration(longest);
    groups.push_back(fmt::format("rank{} {}: {}{}", numbers.size() > 1 ? "s" : "",
                                 NumberRanges::of(numbers).text(), shortest.text(),
                                 until == human_duration(shortest.seconds) ? "" : " to " + until));
  }
  return join(groups, "; ");
}

/// Where more than half of the ranks wait of which that is known, two at least; null where there is none.
const ActivityStatus* place_of_most(const std::vector<StandingRank>& ranks) {
  const auto known = std::ranges::count_if(ranks, is_known);
  for (const StandingRank& rank : ranks) {
    const auto there = std::ranges::count_if(
        ranks, [&](const StandingRank& other) { return same_place(rank.doing, other.doing); });
    if (is_known(rank) && there >= 2 && 2 * there > known) return &rank.doing;
  }
  return nullptr;
}

}  // namespace

Failure standstill(const std::vector<StandingRank>& ranks) {
  const ActivityStatus* most = place_of_most(ranks);
  // The root of a broadcast leaves it before the others have received it.
  if (most != nullptr && most->waits_in == "a broadcast") most = nullptr;
  const auto odd = std::ranges::find_if(ranks, [&](const StandingRank& rank) {
    return most != nullptr && is_known(rank) && !same_place(rank.doing, *most);
  });
  if (odd != ranks.end()) {
    return {odd->who, odd->doing, ExitCode::kPeerLost,
            "it waited elsewhere than most ranks, which waited for it in vain: " + listed(ranks),
            fmt::format("see how process {} on {} came there: all ranks must call the same operations in one "
                        "order; if they do, {}",
                        odd->who.process, odd->who.host, test_and_go_on())};
  }
  const RankIdentity nobody = {RankIdentity::kNobody, ranks.front().who.world_size, "", 0, 0};
  return {nobody,
          {},
          ExitCode::kPeerLost,
          "the ranks waited for each other in vain: " + listed(ranks),
          fmt::format("where they waited in different operations, see why they called them; where one waited "
                      "far shorter than the others, it came late: if it is only slow, raise "
                      "collective_timeout_seconds; else {}",
                      test_and_go_on())};
}

}  // namespace adtrain
