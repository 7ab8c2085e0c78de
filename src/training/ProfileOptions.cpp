#include "training/ProfileOptions.h"

#include <fmt/format.h>

#include "base/Error.h"
#include "base/NumberRanges.h"
#include "base/Text.h"

namespace adtrain {
namespace {

constexpr const char* kSteps = "profile_steps";
constexpr const char* kRanks = "profile_ranks";
constexpr const char* kAllRanks = "all";
/// What is recorded stays in memory until the last of them.
constexpr int64_t kMostSteps = 200;

}  // namespace

void ProfileOptions::declare(Section& section) {
  section
      .key(kSteps, steps,
           "Steps that are profiled, first and last inclusive, as 100-110, or 100 for one: a table of what "
           "took the time, and one trace of all ranks, in the run's folder; null for none.")
      .free_on_resume();
  section
      .key(kRanks, ranks, "Ranks that profile_steps records: all, or a list of ranks, such as [0, 3] or 0-3.")
      .free_on_resume();
}

void ProfileOptions::check(Findings& findings, int64_t train_timesteps) const {
  constexpr const char* kExpected =
      "expected steps such as 100-110, or one such as 100, the first step being 1";
  const auto refuse = [&](const std::string& reason) {
    findings.add(kSteps, fmt::format("found '{}'{}", abridged(*steps), reason));
  };
  if (steps && steps->find_first_not_of(' ') != std::string::npos) {
    const auto found = NumberRange::parse(*steps);
    if (!found || found->first < 1) {
      refuse(fmt::format("; {}", kExpected));
    } else if (found->last < found->first) {
      refuse(fmt::format(", which ends before it begins; {}", kExpected));
    } else if (found->last - found->first >= kMostSteps) {
      refuse(
          fmt::format(", which is {} steps; expected at most {}, as they stay in memory until the last one",
                      found->last - found->first + 1, kMostSteps));
    } else if (found->first > train_timesteps) {
      refuse(fmt::format(", which is after the end of the run; expected steps up to train_timesteps ({})",
                         train_timesteps));
    }
  }
  if (ranks != kAllRanks && !NumberRanges::parse(ranks)) {
    findings.add(kRanks,
                 fmt::format("found '{}'; expected all, or a list of ranks from 0 on, such as [0, 3] or 0-3",
                             abridged(ranks)));
  }
}

std::optional<StepRange> ProfileOptions::range() const {
  const auto found = steps ? NumberRange::parse(*steps) : std::nullopt;
  return found ? std::optional<StepRange>({found->first, found->last}) : std::nullopt;
}

std::vector<int64_t> ProfileOptions::ranks_of(int64_t world_size) const {
  if (ranks == kAllRanks) return NumberRanges::below(world_size).numbers();
  const NumberRanges chosen = NumberRanges::parse(ranks).value();
  if (chosen.largest() < world_size) return chosen.numbers();
  throw ConfigError(
      fmt::format("{}: found rank {}; expected ranks of this run, which are 0 to {}: name others, or all",
                  kRanks, chosen.largest(), world_size - 1));
}

}  // namespace adtrain
