#include <memory>
#include <numeric>

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include "base/Error.h"
#include "data/MemoryHistories.h"
#include "evaluation/scoring/ColumnScoredWindows.h"
#include "evaluation/scoring/GridScoredWindows.h"

namespace adtrain {
namespace {

std::vector<int64_t> all_of(const ScoredWindows& windows) {
  std::vector<int64_t> numbers(static_cast<size_t>(windows.size()));
  std::iota(numbers.begin(), numbers.end(), 0);
  return numbers;
}

/// Transition of task place, stream and step of two streams a task.
const Transition& at_place(const HistorySet& histories, int64_t task, const ScoredWindows::Place& place) {
  return histories.history(2 * task + place.stream)[static_cast<size_t>(place.position)];
}

TEST(GridScoredWindows, EveryActionWithAWholeWindowBeforeItIsThereOnce) {
  const HistorySet histories = HistorySet::random(4, 50, {9, 5}, 1);
  const GridScoredWindows windows(histories, {{8, "task 8", false}, {3, "task 3", true}}, 2,
                                  {.steps = 50, .horizon = 10, .length = 12}, 1);
  ASSERT_EQ(windows.size(), 4 * 39);
  const Batch batch = windows.assemble(all_of(windows));
  int64_t number = 0;
  for (const int64_t task : {0, 1}) {
    for (const int64_t stream : {0, 1}) {
      for (int64_t position = 11; position < 50; ++position, ++number) {
        const ScoredWindows::Place place = windows.place(number);
        ASSERT_EQ(place.task, task == 0 ? 8 : 3);
        ASSERT_EQ(place.stream, stream);
        ASSERT_EQ(place.position, position);
        const Transition& taken = at_place(histories, task, place);
        EXPECT_EQ(batch.actions[number][11].item<int>(), taken.action);
        EXPECT_EQ(batch.states[number][11][0].item<int>(), taken.state[0]);
      }
    }
  }
}

TEST(GridScoredWindows, AStrideLeavesOutWindowsOfEachPhase) {
  const HistorySet histories = HistorySet::random(2, 90, {9, 5}, 2);
  const WindowShape shape = {.steps = 90, .horizon = 10, .episode_stride = 2, .length = 15};
  const GridScoredWindows every(histories, {{0, "task 0", false}}, 2, shape, 1);
  const GridScoredWindows third(histories, {{0, "task 0", false}}, 2, shape, 3);
  // Phases of 50 and 40 steps: 36 and 26 windows, of which every third is 12 and 9.
  ASSERT_EQ(every.size(), 2 * (36 + 26));
  ASSERT_EQ(third.size(), 2 * (12 + 9));
  const Batch all = every.assemble(all_of(every)), some = third.assemble(all_of(third));
  for (int64_t number = 0; number < third.size(); ++number) {
    const int64_t history = number / 21, rest = number % 21;
    const int64_t same = history * 62 + (rest < 12 ? 3 * rest : 36 + 3 * (rest - 12));
    EXPECT_EQ(third.place(number).position, every.place(same).position) << number;
    EXPECT_EQ(third.place(number).stream, history);
    EXPECT_TRUE(some.states[number].equal(all.states[same]));
    EXPECT_EQ(some.actions[number][14].item<int>(), at_place(histories, 0, third.place(number)).action);
  }
}

TEST(GridScoredWindows, OfCompressedContextEveryStepIsAQuery) {
  for (const int64_t stride : {1, 4}) {
    const HistorySet histories = HistorySet::random(2, 27, {9, 5}, 3);
    const GridScoredWindows windows(histories, {{5, "task 5", false}}, 2,
                                    {.steps = 27, .horizon = 9, .region = 10}, stride);
    ASSERT_EQ(windows.size(), 2 * ((27 + stride - 1) / stride));
    const Batch batch = windows.assemble(all_of(windows));
    for (int64_t number = 0; number < windows.size(); ++number) {
      const ScoredWindows::Place place = windows.place(number);
      EXPECT_EQ(place.position, number % (windows.size() / 2) * stride);
      EXPECT_EQ(batch.query_action[number].item<int>(), at_place(histories, 0, place).action);
      EXPECT_EQ(batch.current[number].item<int>(), place.position % 10);
      EXPECT_EQ(batch.previous[number].item<int>(), place.position < 10 ? 0 : 10);
    }
  }
}

TEST(GridScoredWindows, ShortHistoriesAreRefused) {
  const HistorySet histories = HistorySet::random(1, 8, {9, 5}, 3);
  EXPECT_THROW(
      GridScoredWindows(histories, {{0, "task 0", false}}, 1, {.steps = 8, .horizon = 4, .length = 9}, 1),
      DataError);
}

TEST(ColumnScoredWindows, AnActionIsTheLastOfItsWindow) {
  const std::vector<ColumnType> columns = {{ColumnKind::kObservations, ElementType::kInt64, {}},
                                           {ColumnKind::kActions, ElementType::kInt64, {}},
                                           {ColumnKind::kRewards, ElementType::kFloat32, {}}};
  const auto source = std::make_shared<MemoryHistories>(columns);
  const std::vector<std::pair<size_t, int64_t>> histories = {{0, 20}, {1, 30}, {1, 12}, {2, 25}};
  for (const auto& [task, steps] : histories) {
    HistoryWindow& history = source->add(task, steps);
    for (int64_t step = 0; step < steps; ++step) set_number(history, ColumnKind::kActions, step, step % 50);
  }
  const TaskSpaces spaces{Space::discrete(1), Space::discrete(50), {}};
  for (const int64_t stride : {1, 3}) {
    auto cut = std::make_unique<ColumnWindows>(ColumnWindows::Origin{*source, {1, 2}, {spaces}, "memory"},
                                               ColumnWindowShape{.length = 10, .stride = stride, .margin = 1},
                                               std::vector<TaskScale>(2));
    const ColumnScoredWindows windows(source, std::move(cut), {{1, {71, "b", true}}, {2, {72, "c", false}}},
                                      "d");
    const Batch batch = windows.assemble(all_of(windows));
    int64_t number = 0;
    for (const auto& [task, stream, steps] :
         std::vector<std::tuple<int64_t, int64_t, int64_t>>{{71, 0, 30}, {71, 1, 12}, {72, 0, 25}}) {
      for (int64_t position = 10; position < steps - 1; position += stride, ++number) {
        const ScoredWindows::Place place = windows.place(number);
        EXPECT_EQ(place.task, task);
        EXPECT_EQ(place.stream, stream);
        EXPECT_EQ(place.position, position);
        EXPECT_EQ(batch.actions[number][9].item<int64_t>(), position);
      }
    }
    EXPECT_EQ(windows.size(), number);
    EXPECT_EQ(windows.tasks().back().name, "c");
  }
}

}  // namespace
}  // namespace adtrain
