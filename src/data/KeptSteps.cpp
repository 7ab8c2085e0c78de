#include "data/KeptSteps.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include <fmt/format.h>

#include "base/Error.h"
#include "data/formats/Episodes.h"

namespace adtrain {
namespace {

constexpr int64_t kStepsAtOnce = 65536;

/// The first step of each episode, and the end of the history behind them.
std::vector<int64_t> bounds_of_episodes(const HistorySource& source, size_t task, size_t history,
                                        int64_t steps) {
  EpisodeFinder finder;
  HistoryWindow window;
  std::vector<Episode> episodes;
  std::vector<int64_t> bounds = {0};
  for (int64_t first = 0; first < steps; first += kStepsAtOnce) {
    source.read(task, history, first, std::min(kStepsAtOnce, steps - first), EpisodeFinder::columns(),
                window);
    episodes.clear();
    finder.add(window, episodes);
    for (const Episode& episode : episodes) bounds.push_back(episode.last_step + 1);
  }
  if (bounds.back() < steps) bounds.push_back(steps);
  return bounds;
}

}  // namespace

KeptSteps KeptSteps::of_episodes(const EpisodeChoice& choice, const HistorySource& source, size_t task,
                                 size_t history, int64_t steps) {
  if (!EpisodeFinder::can_tell(source.groups()[source.tasks()[task].group].columns)) {
    throw DataError(
        fmt::format("{}: its histories do not say where episodes end; expected dones, terminations, "
                    "truncations or step numbers where some episodes are left out, or episode_stride: 1",
                    source.tasks()[task].name));
  }
  const std::vector<int64_t> bounds = bounds_of_episodes(source, task, history, steps);
  KeptSteps kept(0);
  std::vector<Run> runs;
  const auto episodes = static_cast<double>(bounds.size() - 1);
  const auto end = static_cast<size_t>(choice.to * episodes);
  for (auto episode = static_cast<size_t>(choice.from * episodes); episode < end;
       episode += static_cast<size_t>(choice.stride)) {
    runs.push_back({kept.size_, bounds[episode]});
    kept.size_ += bounds[episode + 1] - bounds[episode];
  }
  kept.runs_ = std::make_shared<const std::vector<Run>>(std::move(runs));
  return kept;
}

std::string KeptSteps::to_bytes() const {
  std::string bytes(reinterpret_cast<const char*>(&size_), sizeof size_);
  if (thinned()) bytes.append(reinterpret_cast<const char*>(runs_->data()), runs_->size() * sizeof(Run));
  return bytes;
}

KeptSteps KeptSteps::from_bytes(const std::string& bytes) {
  KeptSteps kept(0);
  std::memcpy(&kept.size_, bytes.data(), sizeof kept.size_);
  const size_t of_runs = bytes.size() - sizeof kept.size_;
  if (of_runs == 0) return kept;
  std::vector<Run> runs(of_runs / sizeof(Run));
  std::memcpy(runs.data(), bytes.data() + sizeof kept.size_, of_runs);
  kept.runs_ = std::make_shared<const std::vector<Run>>(std::move(runs));
  return kept;
}

KeptSteps::Place KeptSteps::place_of(int64_t kept) const {
  if (!thinned()) return {{0, 0}, size_};
  const auto next = std::ranges::upper_bound(*runs_, kept, {}, &Run::kept);
  return {*std::prev(next), next == runs_->end() ? size_ : next->kept};
}

}  // namespace adtrain
