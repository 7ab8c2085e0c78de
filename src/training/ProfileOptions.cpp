#include "training/ProfileOptions.h"

#include <algorithm>
#include <charconv>
#include <numeric>
#include <string_view>

#include <fmt/format.h>

#include "base/Error.h"
#include "base/Text.h"

namespace adtrain {
namespace {

constexpr const char* kSteps = "profile_steps";
constexpr const char* kRanks = "profile_ranks";
constexpr const char* kAllRanks = "all";
/// What is recorded stays in memory until the last of them.
constexpr int64_t kMostSteps = 200;

std::string_view trimmed(std::string_view text) {
  const size_t first = text.find_first_not_of(' ');
  if (first == std::string_view::npos) return "";
  return text.substr(first, text.find_last_not_of(' ') - first + 1);
}

/// A whole number of at most twelve digits, and nothing else.
std::optional<int64_t> number_in(std::string_view text) {
  constexpr size_t kMostDigits = 12;
  text = trimmed(text);
  int64_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  const bool whole = error == std::errc() && end == text.data() + text.size();
  return whole && text.size() <= kMostDigits && value >= 0 ? std::optional(value) : std::nullopt;
}

/// "100-110", or "100" for that one alone.
std::optional<StepRange> range_in(std::string_view text) {
  const size_t dash = text.find('-');
  const auto first = number_in(text.substr(0, dash));
  const auto last = dash == std::string_view::npos ? first : number_in(text.substr(dash + 1));
  if (!first || !last) return std::nullopt;
  return StepRange{*first, *last};
}

/// "0,3" as numbers; none where it is anything else.
std::optional<std::vector<int64_t>> ranks_in(std::string_view text) {
  std::vector<int64_t> ranks;
  for (size_t begin = 0; begin <= text.size();) {
    const size_t comma = std::min(text.find(',', begin), text.size());
    const auto rank = number_in(text.substr(begin, comma - begin));
    if (!rank) return std::nullopt;
    ranks.push_back(*rank);
    begin = comma + 1;
  }
  std::ranges::sort(ranks);
  ranks.erase(std::unique(ranks.begin(), ranks.end()), ranks.end());
  return ranks;
}

}  // namespace

void ProfileOptions::declare(Section& section) {
  section
      .key(kSteps, steps,
           "Steps that are profiled, first and last inclusive, as 100-110, or 100 for one: a table of what "
           "took "
           "the time, and one trace of all ranks, in the run's folder; null for none.")
      .unit("optimizer steps")
      .free_on_resume();
  section.key(kRanks, ranks, "Ranks that profile_steps records: all, or a list of ranks, such as [0, 3].")
      .free_on_resume();
}

void ProfileOptions::check(Findings& findings, int64_t train_timesteps) const {
  constexpr const char* kExpected =
      "expected steps such as 100-110, or one such as 100, the first step being 1";
  const auto refuse = [&](const std::string& reason) {
    findings.add(kSteps, fmt::format("found '{}'{}", abridged(*steps), reason));
  };
  if (steps && !trimmed(*steps).empty()) {
    const auto found = range_in(*steps);
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
  if (ranks != kAllRanks && !ranks_in(ranks)) {
    findings.add(kRanks,
                 fmt::format("found '{}'; expected all, or a list of ranks from 0 on, such as [0, 3] or 0,3",
                             abridged(ranks)));
  }
}

std::optional<StepRange> ProfileOptions::range() const {
  return steps ? range_in(*steps) : std::nullopt;
}

std::vector<int64_t> ProfileOptions::ranks_of(int64_t world_size) const {
  std::vector<int64_t> all(static_cast<size_t>(world_size));
  std::iota(all.begin(), all.end(), 0);
  if (ranks == kAllRanks) return all;
  std::vector<int64_t> chosen = ranks_in(ranks).value();
  if (chosen.back() < world_size) return chosen;
  throw ConfigError(
      fmt::format("{}: found rank {}; expected ranks of this run, which are 0 to {}: name others, or all",
                  kRanks, chosen.back(), world_size - 1));
}

}  // namespace adtrain
