#include "data/ColumnWindowIndex.h"

#include <algorithm>
#include <cmath>
#include <map>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/Error.h"
#include "base/Random.h"
#include "data/MemoryHistories.h"
#include "data/formats/WrittenHistories.h"

namespace adtrain {
namespace {

using testing::AllOf;
using testing::HasSubstr;
using Place = std::tuple<size_t, size_t, int64_t>;

const std::vector<ColumnType> kColumns = {{ColumnKind::kObservations, ElementType::kUint8, {}},
                                          {ColumnKind::kActions, ElementType::kUint8, {}},
                                          {ColumnKind::kRewards, ElementType::kFloat32, {}},
                                          {ColumnKind::kEnds, ElementType::kBool, {}}};

/// 1 to 4 tasks of 1 to 4 histories of random lengths, in which a step in five ends an episode.
MemoryHistories random_histories(RandomStream& random) {
  MemoryHistories histories(kColumns);
  for (size_t task = 0, tasks = 1 + static_cast<size_t>(random.below(4)); task < tasks; ++task) {
    for (int64_t history = 0, count = 1 + random.below(4); history < count; ++history) {
      const int64_t steps = 60 + random.below(200);
      HistoryWindow& added = histories.add(task, steps);
      for (int64_t step = 0; step < steps; ++step)
        set_number<uint8_t>(added, ColumnKind::kEnds, step, random.below(5) == 0 ? 1 : 0);
    }
  }
  return histories;
}

/// Lets some tasks say which of their episodes are used.
void choose_episodes(MemoryHistories& histories, RandomStream& random) {
  for (size_t task = 0; task < histories.tasks().size(); ++task) {
    auto& attributes = histories.task(task).attributes;
    if (random.below(3) == 0) attributes["episode_sparsity"] = std::to_string(1 + random.below(3));
    const double from = 0.5 * random.uniform();
    if (random.below(3) == 0)
      attributes["episode_range"] = fmt::format("{},{}", from, from + 0.1 + 0.4 * random.uniform());
  }
}

/// Whether an episode is used, of so many.
bool is_used(const TaskHistories& task, int64_t stride, int64_t episode, int64_t episodes) {
  const auto& attributes = task.attributes;
  if (attributes.contains("episode_sparsity")) stride *= std::stoll(attributes.at("episode_sparsity"));
  int64_t first = 0, end = episodes;
  if (attributes.contains("episode_range")) {
    const std::string range = attributes.at("episode_range");
    first = static_cast<int64_t>(std::floor(std::stod(range) * static_cast<double>(episodes)));
    end = static_cast<int64_t>(
        std::floor(std::stod(range.substr(range.find(',') + 1)) * static_cast<double>(episodes)));
  }
  return episode >= first && episode < end && (episode - first) % stride == 0;
}

/// All windows, listed one after the other as the class's comment defines them.
std::vector<Place> listed(const HistorySource& source, const ColumnWindowShape& shape) {
  std::vector<Place> places;
  for (size_t task = 0; task < source.tasks().size(); ++task) {
    for (size_t history = 0; history < source.tasks()[task].steps.size(); ++history) {
      if (shape.streams != kAllThereAre && history >= static_cast<size_t>(shape.streams)) continue;
      int64_t steps = source.tasks()[task].steps[history];
      if (shape.steps != kAllThereAre) steps = std::min(steps, shape.steps);
      const HistoryWindow all = source.window(task, history, 0, steps);
      std::vector<int64_t> kept;
      int64_t episodes = 1;
      for (int64_t step = 0; step + 1 < steps; ++step)
        episodes += all.find(ColumnKind::kEnds)->number(step) != 0 ? 1 : 0;
      for (int64_t step = 0, episode = 0; step < steps; ++step) {
        if (is_used(source.tasks()[task], shape.episode_stride, episode, episodes)) kept.push_back(step);
        if (all.find(ColumnKind::kEnds)->number(step) != 0) ++episode;
      }
      const auto count = static_cast<int64_t>(kept.size());
      for (int64_t on_grid = 0; on_grid + 2 * shape.margin + shape.length <= count; on_grid += shape.stride) {
        const auto begin = static_cast<double>(kept[static_cast<size_t>(on_grid)]);
        if (begin >= static_cast<double>(steps - 1) * (1 - shape.last_fraction))
          places.emplace_back(task, history, on_grid + shape.margin);
      }
    }
  }
  return places;
}

std::vector<Place> numbered(const ColumnWindowIndex& index) {
  std::vector<Place> places;
  for (int64_t sample = 0; sample < index.size(); ++sample) {
    const ColumnWindow window = index.window(sample);
    places.emplace_back(window.task, window.history, window.start);
  }
  return places;
}

std::vector<size_t> all_tasks(const HistorySource& source) {
  std::vector<size_t> tasks;
  for (size_t task = 0; task < source.tasks().size(); ++task) tasks.push_back(task);
  return tasks;
}

TEST(ColumnWindowIndex, NumbersEveryWindowOnce) {
  const uint64_t seed = fresh_seed();
  RandomStream random(seed);
  int compared = 0;
  for (int round = 0; round < 500; ++round) {
    MemoryHistories source = random_histories(random);
    choose_episodes(source, random);
    ColumnWindowShape shape{.length = 1 + random.below(20), .stride = 1 + random.below(15)};
    shape.margin = random.below(3);
    shape.episode_stride = 1 + random.below(3);
    if (random.below(3) == 0) shape.last_fraction = 0.05 + 0.9 * random.uniform();
    if (random.below(3) == 0) shape.steps = 50 + random.below(100);
    if (random.below(3) == 0) shape.streams = 1 + random.below(3);
    const std::vector<Place> expected = listed(source, shape);
    try {
      const ColumnWindowIndex index(source, all_tasks(source), shape, compute_alone(2));
      EXPECT_EQ(numbered(index), expected);
      ++compared;
    } catch (const DataError& error) {
      EXPECT_THAT(error.what(), HasSubstr("no window"));
    }
  }
  EXPECT_GT(compared, 200);
}

TEST(ColumnWindowIndex, TasksMayBeDrawnEquallyOften) {
  MemoryHistories source(kColumns);
  source.add(0, 21);
  source.add(1, 100);
  source.add(2, 40);
  const ColumnWindowIndex index(source, {0, 1, 2}, {.length = 10, .weights = TaskWeights::kTasks});
  EXPECT_EQ(index.windows(), 12 + 91 + 31);
  EXPECT_EQ(index.size(), 3 * 91);
  std::map<size_t, int64_t> of_task;
  std::map<Place, int64_t> of_window;
  for (const Place& place : numbered(index)) {
    ++of_task[std::get<0>(place)];
    ++of_window[place];
  }
  EXPECT_THAT(of_task, testing::Each(testing::Field(&std::pair<const size_t, int64_t>::second, 91)));
  EXPECT_EQ(of_window.size(), 12U + 91 + 31) << "every window is drawn";
  for (const auto& [place, times] : of_window) {
    if (std::get<0>(place) == 0) {
      EXPECT_THAT(times, AllOf(testing::Ge(7), testing::Le(8)));
    }
  }
}

TEST(ColumnWindowIndex, AFewMayBeSpreadEvenly) {
  MemoryHistories source(kColumns);
  source.add(0, 109);
  const ColumnWindowIndex index(source, {0}, {.length = 10, .most_samples = 4});
  EXPECT_THAT(numbered(index),
              testing::ElementsAre(Place(0, 0, 0), Place(0, 0, 25), Place(0, 0, 50), Place(0, 0, 75)));
}

TEST(ColumnWindowIndex, ATaskWithoutAWindowIsNamed) {
  MemoryHistories source(kColumns);
  source.add(0, 50);
  source.add(1, 9);
  source.add(1, 11);
  try {
    const ColumnWindowIndex index(source, {0, 1}, {.length = 10, .margin = 1});
    FAIL() << "expected a DataError";
  } catch (const DataError& error) {
    EXPECT_THAT(error.what(),
                AllOf(HasSubstr("task 1: no window: 11 steps"), HasSubstr("expected 12"),
                      HasSubstr("leave the task out with tasks (in adtrain score: score_tasks)")));
  }
  EXPECT_EQ(ColumnWindowIndex(source, {0}, {.length = 10, .margin = 1}).size(), 39);
}

TEST(ColumnWindowIndex, WhereAxesLookExchangedThatIsSaid) {
  const TemporaryFolder folder;
  const auto file = folder.path() / "a.hdf5";
  run_python(fmt::format(R"(
with h5py.File('{}', 'w') as f:
    f.attrs['adtrain-format'] = 2
    for name in 'states', 'actions', 'rewards':
        f['0/' + name] = np.zeros((3, 100), 'u1')
)",
                         file.string()));
  const auto source = HistorySource::open(file);
  try {
    const ColumnWindowIndex index(*source, {0}, {.length = 10});
    FAIL() << "expected a DataError";
  } catch (const DataError& error) {
    EXPECT_THAT(error.what(), AllOf(HasSubstr("task 0: no window: 3 steps"),
                                    HasSubstr("no attribute axes, which then is time,stream")));
  }
}

TEST(ColumnWindowIndex, EpisodesCannotBeLeftOutWhereTheDataDoNotTellThem) {
  MemoryHistories source({kColumns[0], kColumns[1], kColumns[2]});
  source.add(0, 50);
  try {
    const ColumnWindowIndex index(source, {0}, {.length = 10, .episode_stride = 2});
    FAIL() << "expected a DataError";
  } catch (const DataError& error) {
    EXPECT_THAT(error.what(), HasSubstr("do not say where episodes end"));
  }
}

/// 100 million windows of a billion steps are numbers, no table.
TEST(ColumnWindowIndex, TakesNoMemoryAWindow) {
  class Endless final : public HistorySource {
   public:
    Endless() : groups_{{"", {}, {}, {}, kColumns}} {
      for (int64_t task = 0; task < 1000; ++task)
        tasks_.push_back({std::to_string(task), task, 0, {}, std::vector<int64_t>(32, 3'000'000'000)});
    }
    HistoryFormat format() const override { return HistoryFormat::kXland; }
    std::string description() const override { return ""; }
    const std::vector<SpaceGroup>& groups() const override { return groups_; }
    const std::vector<TaskHistories>& tasks() const override { return tasks_; }
    size_t cached_bytes() const override { return 0; }

   protected:
    void read_columns(size_t, size_t, int64_t, int64_t, const ColumnKinds&, HistoryWindow&) const override {
      FAIL() << "nothing is to be read";
    }

   private:
    std::vector<SpaceGroup> groups_;
    std::vector<TaskHistories> tasks_;
  };
  const Endless source;
  const ColumnWindowIndex index(source, all_tasks(source), {.length = 4096});
  EXPECT_EQ(index.size(), int64_t{32000} * (3'000'000'000 - 4095));
  const ColumnWindow last = index.window(index.size() - 1);
  EXPECT_EQ(Place(last.task, last.history, last.start), Place(999, 31, 3'000'000'000 - 4096));
}

}  // namespace
}  // namespace adtrain
