#include "environments/TaskFamily.h"

#include <algorithm>
#include <array>
#include <numeric>

#include <gtest/gtest.h>

#include "base/Random.h"
#include "environments/EnvironmentBatch.h"
#include "environments/TaskSplit.h"

namespace adtrain {
namespace {

TaskFamily family_of(const std::string& env, int64_t grid_size = 9) {
  EnvironmentOptions options;
  options.env = env;
  options.grid_size = grid_size;
  return TaskFamily::of(options);
}

double mean(const std::vector<int64_t>& tasks, const auto& figure) {
  double total = 0;
  for (const int64_t task : tasks) total += figure(task);
  return total / static_cast<double>(tasks.size());
}

std::vector<int64_t> all_tasks(const TaskFamily& family) {
  std::vector<int64_t> tasks(static_cast<size_t>(family.task_count()));
  std::iota(tasks.begin(), tasks.end(), 0);
  return tasks;
}

TEST(TaskFamily, FloorsAndCeilingsAreThePublishedOnes) {
  const auto check = [](const TaskFamily& family, const std::vector<int64_t>& tasks, double floor,
                        double ceiling, double floor_precision) {
    EXPECT_NEAR(mean(tasks, [&](int64_t task) { return family.random_return(task); }), floor,
                floor_precision);
    EXPECT_NEAR(mean(tasks, [&](int64_t task) { return family.best_return(task); }), ceiling, 0.005);
  };
  const TaskFamily darkroom = family_of("darkroom");
  check(darkroom, all_tasks(darkroom), 0.247, 16.54, 0.0005);
  check(darkroom, TaskSplit::of(EnvironmentOptions(), 81, TaskOptions()).test, 0.325, 17.25, 0.0005);
  const TaskFamily permuted = family_of("darkroompermuted");
  check(permuted, all_tasks(permuted), 0.024, 35, 0.0005);
  const TaskFamily key_to_door = family_of("darkkeytodoor");
  check(key_to_door, all_tasks(key_to_door), 0.27, 2, 0.005);
}

TEST(TaskFamily, CountsTasksByTheGrid) {
  EXPECT_EQ(family_of("darkroom", 5).task_count(), 25);
  EXPECT_EQ(family_of("darkroompermuted", 5).task_count(), 120);
  EXPECT_EQ(family_of("darkkeytodoor", 5).task_count(), 625);
}

TEST(TaskFamily, NumbersTasksLikeThePythonProjects) {
  EXPECT_EQ(family_of("darkroom").task(38).goal, (Cell{4, 2}));
  const Task key_to_door = family_of("darkkeytodoor").task(((1 * 9 + 2) * 9 + 3) * 9 + 4);
  EXPECT_EQ(key_to_door.key, (Cell{1, 2}));
  EXPECT_EQ(key_to_door.goal, (Cell{3, 4}));

  const TaskFamily permuted = family_of("darkroompermuted");
  const std::array<Cell, 5> moves = family_of("darkroom").task(0).moves;
  std::array<size_t, 5> order = {0, 1, 2, 3, 4};
  for (int64_t task = 0; task < 120; ++task) {
    for (size_t action = 0; action < 5; ++action) {
      EXPECT_EQ(permuted.task(task).moves[action], moves[order[action]]) << "task " << task;
    }
    std::next_permutation(order.begin(), order.end());
  }
}

/// The best return by trying all there is: backward induction over every state, with and without key.
double best_by_search(const TaskFamily& family, const Task& task) {
  const auto grid = static_cast<int32_t>(family.grid_size());
  const int32_t cells = grid * grid;
  enum Phase { kSearching, kCarrying, kFinished };
  const auto index = [&](int64_t phase, Cell cell) {
    return static_cast<size_t>(phase * cells + cell.x * grid + cell.y);
  };
  std::vector<double> value(static_cast<size_t>(3 * cells), 0.0);
  for (int64_t step = 0; step < family.horizon(); ++step) {
    std::vector<double> before(value.size(), 0.0);
    for (int32_t at = 0; at < 3 * cells; ++at) {
      for (const Cell move : task.moves) {
        int phase = at / cells;
        const Cell to{std::clamp(at % cells / grid + move.x, 0, grid - 1),
                      std::clamp(at % cells % grid + move.y, 0, grid - 1)};
        double reward = 0;
        if (phase == kCarrying && to == task.goal) {
          reward = 1;
          if (task.key) phase = kFinished;
        } else if (phase == kSearching && to == task.key) {
          reward = 1;
          phase = kCarrying;
        }
        const double total = reward + value[index(phase, to)];
        before[static_cast<size_t>(at)] = std::max(before[static_cast<size_t>(at)], total);
      }
    }
    value = before;
  }
  const int phase = task.key ? kSearching : kCarrying;
  return value[index(phase, task.start)];
}

TEST(TaskFamily, BestReturnIsThatOfExhaustiveSearch) {
  for (const char* env : {"darkroom", "darkroompermuted", "darkkeytodoor"}) {
    for (const int64_t horizon : {1, 3, 7, 20}) {
      EnvironmentOptions options;
      options.env = env;
      options.grid_size = 4;
      options.horizon = horizon;
      const TaskFamily family = TaskFamily::of(options);
      for (int64_t task = 0; task < family.task_count(); ++task) {
        EXPECT_EQ(family.best_return(task), best_by_search(family, family.task(task)))
            << env << " task " << task << " horizon " << horizon;
      }
    }
  }
}

TEST(TaskFamily, RandomReturnIsWhatRandomPlayEarns) {
  RandomStream random(seed_of(20240229));
  for (const char* env : {"darkroom", "darkroompermuted", "darkkeytodoor"}) {
    EnvironmentOptions options;
    options.env = env;
    options.grid_size = 3;
    const TaskFamily family = TaskFamily::of(options);
    const auto task = static_cast<int64_t>(random.below(static_cast<uint32_t>(family.task_count())));
    constexpr size_t kCopies = 40'000;
    EnvironmentBatch environments(family, std::vector<int64_t>(kCopies, task));
    std::vector<int32_t> actions(kCopies);
    double total = 0, squares = 0;
    std::vector<int32_t> returns(kCopies);
    do {
      for (int32_t& action : actions) action = static_cast<int32_t>(random.below(5));
      environments.step(actions);
      for (size_t i = 0; i < kCopies; ++i) returns[i] += environments.rewards()[i];
    } while (!environments.done());
    for (const int32_t earned : returns) {
      total += earned;
      squares += static_cast<double>(earned) * earned;
    }
    const double average = total / kCopies;
    const double standard_error = std::sqrt((squares / kCopies - average * average) / kCopies);
    EXPECT_NEAR(family.random_return(task), average, 5 * standard_error + 1e-9) << env << " task " << task;
  }
}

}  // namespace
}  // namespace adtrain
