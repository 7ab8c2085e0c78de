#include "collection/own/RandomScore.h"

#include <algorithm>
#include <memory>
#include <span>
#include <utility>
#include <vector>

#include "base/Random.h"
#include "collection/own/ActionDistribution.h"
#include "collection/own/SeededEnvironments.h"
#include "environments/RandomAction.h"

namespace adtrain {
namespace {

/// Numbers of random actions, as ActionDistribution has them.
void draw_actions(const Space& space, RandomStream& random, std::span<float> actions) {
  const auto width = static_cast<size_t>(space.size());
  for (size_t i = 0; i < actions.size(); ++i) {
    const size_t element = i % width;
    const double start = space.start.empty() ? 0.0 : static_cast<double>(space.start[element]);
    actions[i] = static_cast<float>(random_element(space, element, random) - start);
  }
}

}  // namespace

std::optional<double> random_score(WorkerPool& pool, int64_t task, int64_t episodes, int64_t places,
                                   uint64_t seed, const std::function<bool()>& stop) {
  constexpr uint64_t kPurpose = 1;  // other numbers than those that learning draws
  RandomStream random(seed_of(seed, kPurpose));
  const Space action = pool.hello().action;
  const ActionDistribution distribution(action);
  const int64_t count = std::min(episodes, places);
  const std::unique_ptr<WorkerBatch> environments = make_environments(pool, task, count, random.key());
  // So many of each environment, whatever their lengths: the first to end would be the shortest.
  std::vector<int64_t> wanted(static_cast<size_t>(count), episodes / count);
  for (size_t place = 0; place < static_cast<size_t>(episodes % count); ++place) ++wanted[place];
  std::vector<double> earned(wanted.size());
  std::vector<float> actions(wanted.size() * static_cast<size_t>(distribution.size()));
  double total = 0;
  while (std::ranges::any_of(wanted, [](int64_t left) { return left > 0; })) {
    if (stop && stop()) return std::nullopt;
    draw_actions(action, random, actions);
    distribution.write(actions, environments->actions());
    environments->begin_step();
    environments->finish_step();
    for (size_t place = 0; place < wanted.size(); ++place) {
      earned[place] += environments->rewards()[place];
      if (environments->ended()[place] == 0) continue;
      if (wanted[place]-- > 0) total += earned[place];
      earned[place] = 0;
    }
  }
  return total / static_cast<double>(episodes);
}

}  // namespace adtrain
