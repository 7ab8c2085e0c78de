#include "environments/TaskFamily.h"

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <numeric>
#include <stdexcept>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include "base/Error.h"
#include "base/Random.h"
#include "base/Text.h"
#include "environments/PluginFamilies.h"

namespace adtrain {
namespace {

/// The index of a cell in a table of a grid's cells.
size_t cell_index(int32_t x, int32_t y, int32_t grid) {
  return static_cast<size_t>(x) * static_cast<size_t>(grid) + static_cast<size_t>(y);
}

constexpr std::array<Cell, kActions> kMoves = {{{1, 0}, {-1, 0}, {0, 1}, {0, -1}, {0, 0}}};
constexpr int64_t kPermutations = 120;  // 5!

/// The `index`-th permutation of kMoves in lexicographic order of the actions' numbers: its digits in the
/// factorial number system choose among the remaining actions.
std::array<Cell, kActions> permuted_moves(int64_t index) {
  std::vector<Cell> left(kMoves.begin(), kMoves.end());
  std::array<Cell, kActions> moves;
  int64_t arrangements = kPermutations;
  for (int64_t action = 0; action < kActions; ++action) {
    arrangements /= kActions - action;
    const auto chosen = left.begin() + index / arrangements;
    index %= arrangements;
    moves[static_cast<size_t>(action)] = *chosen;
    left.erase(chosen);
  }
  return moves;
}

/// The fewest steps after which the agent is on `to`; at least one, even from `to` itself.
int64_t steps_between(Cell from, Cell to) {
  return std::max<int64_t>(1, std::abs(from.x - to.x) + std::abs(from.y - to.y));
}

/// The probability of each cell after one uniformly random action.
std::vector<double> spread(const std::vector<double>& probability, int32_t grid) {
  std::vector<double> spread_out(probability.size());
  for (int32_t x = 0; x < grid; ++x) {
    for (int32_t y = 0; y < grid; ++y) {
      const double share = probability[cell_index(x, y, grid)] / kActions;
      for (const Cell move : kMoves) {
        const int32_t to_x = std::clamp(x + move.x, 0, grid - 1), to_y = std::clamp(y + move.y, 0, grid - 1);
        spread_out[cell_index(to_x, to_y, grid)] += share;
      }
    }
  }
  return spread_out;
}

/// Null where the options name no plug-in's.
std::shared_ptr<const EnvironmentFamily> plugin_of(const EnvironmentOptions& options) {
  if (options.family() != Family::kPlugin) return nullptr;
  const PluginFamily& plugin = *PluginFamilies::find(options.family_name());
  auto family = plugin.make({.grid_size = options.grid_size, .horizon = options.episode_horizon()});
  if (family != nullptr && family->task_count() >= 1) return family;
  throw ConfigError(fmt::format(
      "env: {} made {} '{}'; expected a task family with one task at least", plugin.origin,
      family == nullptr ? "no family" : fmt::format("{} tasks of", family->task_count()), plugin.name));
}

double measured_random_return(const EnvironmentFamily& family, int64_t task, int64_t horizon) {
  constexpr int64_t kEpisodes = 1000;
  RandomStream random(seed_of(task));
  const std::unique_ptr<Environment> environment = family.make(task);
  double sum = 0;
  for (int64_t episode = 0; episode < kEpisodes; ++episode) {
    environment->reset();
    for (int64_t step = 0; step < horizon; ++step)
      sum += environment->step(static_cast<int32_t>(random.below(kActions))).reward;
  }
  return sum / kEpisodes;
}

}  // namespace

TaskFamily TaskFamily::of(const EnvironmentOptions& options) {
  if (options.has_own_tasks()) {
    const std::string nearest = nearest_name(options.env, environment_names());
    throw ConfigError(
        fmt::format("env: no task family is called '{}'; expected darkroom, darkroompermuted, "
                    "darkkeytodoor or a plug-in's{}",
                    options.env, nearest.empty() ? "" : fmt::format("; did you mean '{}'?", nearest)));
  }
  return TaskFamily(options.family(), options.family_name(), options.grid_size, options.episode_horizon(),
                    plugin_of(options));
}

int64_t TaskFamily::task_count() const {
  const int64_t cells = grid_size_ * grid_size_;
  switch (family_) {
    case Family::kDarkroom:
      return cells;
    case Family::kDarkroomPermuted:
      return kPermutations;
    case Family::kDarkKeyToDoor:
      return cells * cells;
    case Family::kPlugin:
      return plugin_->task_count();
    case Family::kOwn:
      break;
  }
  std::abort();
}

Task TaskFamily::task(int64_t index) const {
  const auto grid = static_cast<int32_t>(grid_size_);
  const Cell middle{grid / 2, grid / 2};
  const auto cell_of = [&](int64_t number) {
    return Cell{static_cast<int32_t>(number / grid_size_), static_cast<int32_t>(number % grid_size_)};
  };
  switch (family_) {
    case Family::kDarkroom:
      return {middle, cell_of(index), std::nullopt, kMoves};
    case Family::kDarkroomPermuted:
      return {{0, 0}, {grid - 1, grid - 1}, std::nullopt, permuted_moves(index)};
    case Family::kDarkKeyToDoor: {
      const int64_t cells = grid_size_ * grid_size_;
      return {middle, cell_of(index % cells), cell_of(index / cells), kMoves};
    }
    case Family::kOwn:
    case Family::kPlugin:
      throw std::logic_error("A task of a plug-in's family is known to its environments alone.");
  }
  std::abort();
}

double TaskFamily::best_return(int64_t index) const {
  if (plugin_ != nullptr) return plugin_->best_return(index);
  const Task task = this->task(index);
  if (!task.key) {
    return static_cast<double>(std::max<int64_t>(0, horizon_ + 1 - steps_between(task.start, task.goal)));
  }
  const int64_t to_key = steps_between(task.start, *task.key);
  const int64_t to_goal = to_key + steps_between(*task.key, task.goal);
  return (to_key <= horizon_ ? 1 : 0) + (to_goal <= horizon_ ? 1 : 0);
}

double TaskFamily::random_return(int64_t index) const {
  if (plugin_ != nullptr) {
    const std::optional<double> known = plugin_->random_return(index);
    return known ? *known : measured_random_return(*plugin_, index, horizon_);
  }
  const Task task = this->task(index);
  const auto grid = static_cast<int32_t>(grid_size_);
  const auto at = [&](Cell cell) { return cell_index(cell.x, cell.y, grid); };

  // Two distributions over cells: of agents for which the goal pays (`seeking`), and of those that must find
  // the key first. Agents whose goal has paid for good are in neither.
  std::vector<double> seeking(static_cast<size_t>(grid * grid)), without_key(seeking.size());
  (task.key ? without_key : seeking)[at(task.start)] = 1;
  double expected = 0;
  for (int64_t step = 0; step < horizon_; ++step) {
    seeking = spread(seeking, grid);
    expected += seeking[at(task.goal)];
    if (!task.key) continue;
    seeking[at(task.goal)] = 0;
    without_key = spread(without_key, grid);
    const double found = std::exchange(without_key[at(*task.key)], 0.0);
    expected += found;
    seeking[at(*task.key)] += found;
  }
  return expected;
}

}  // namespace adtrain
