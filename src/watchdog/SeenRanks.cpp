#include "watchdog/SeenRanks.h"

#include <algorithm>

namespace adtrain {
namespace {

constexpr double kSecondsOfSuspension = 2;  // looks are far more frequent

}  // namespace

void SeenRanks::look() {
  const bool was_suspended = since_look_.seconds() > kSecondsOfSuspension;
  since_look_.restart();
  const auto keep = [was_suspended](std::optional<Stopwatch>& since, bool holds) {
    if (!holds) since.reset();
    if (holds && (!since || was_suspended)) since.emplace();
  };
  const auto here = local_.look();
  for (const int64_t rank : local_.expected()) ranks_.try_emplace(rank);
  for (const auto& [rank, sight] : here) {
    Rank& seen = ranks_[rank];
    if (seen.process == sight.process) continue;
    seen.process = sight.process;
    seen.descriptor = ProcessDescriptor(sight.process);
  }
  for (auto& [rank, seen] : ranks_) {
    const auto found = here.find(rank);
    const bool is_gone = found == here.end();
    if (!is_gone) std::erase(gone_, rank);
    if (is_gone && !seen.gone) gone_.push_back(rank);
    keep(seen.gone, is_gone);
    keep(seen.stopped, !is_gone && found->second.stopped);
  }
}

std::optional<int64_t> SeenRanks::gone_for(double seconds) const {
  const auto seconds_of = [this](int64_t rank) { return ranks_.at(rank).gone->seconds(); };
  const auto seen = std::ranges::find_if(
      gone_, [&](int64_t rank) { return ranks_.at(rank).process > 0 && seconds_of(rank) > seconds; });
  if (seen == gone_.end()) return std::nullopt;
  return *std::find_if(gone_.begin(), seen, [&](int64_t rank) {
    return ranks_.at(rank).process == 0 && seconds_of(rank) > seconds_of(*seen) + seconds;
  });
}

std::vector<int> SeenRanks::descriptors() const {
  std::vector<int> all;
  for (const auto& [rank, seen] : ranks_)
    if (!seen.gone) all.push_back(seen.descriptor.get());
  return all;
}

}  // namespace adtrain
