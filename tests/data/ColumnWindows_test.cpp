#include "data/ColumnWindows.h"

#include <limits>
#include <map>
#include <numeric>
#include <optional>
#include <thread>

#include <ATen/ATen.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/Error.h"
#include "base/Random.h"
#include "data/BatchSource.h"
#include "data/MemoryHistories.h"
#include "data/formats/WrittenHistories.h"

namespace adtrain {
namespace {

using nlohmann::json;
using testing::AllOf;
using testing::HasSubstr;

std::string bytes_of(const at::Tensor& tensor) {
  const at::Tensor whole = tensor.contiguous();
  return {static_cast<const char*>(whole.const_data_ptr()), whole.nbytes()};
}

/// What loader_windows.py says.
struct Loaded {
  std::string bytes;
  json facts;
};

Loaded loaded(const std::string& format, const std::filesystem::path& path, const ColumnWindowShape& shape,
              double reward_scale, const std::filesystem::path& list_folder = {}) {
  const TemporaryFolder folder;
  const auto out = folder.path() / "windows";
  const Finished python = run_shell(
      fmt::format("{} {} {} {} {} {} {} {} {} {} {}", quoted(ADTRAIN_PYTHON),
                  quoted(ADTRAIN_SOURCE_DIR "/tests/data/loader_windows.py"), format, quoted(path.string()),
                  quoted(out.string()), shape.length, shape.stride, shape.episode_stride, shape.last_fraction,
                  reward_scale, quoted(list_folder.string())));
  if (python.exit_code != 0) throw std::runtime_error(python.output);
  return {read_file(out), json::parse(read_file(out.string() + ".json"))};
}

TaskSpaces spaces_of(const HistorySource& source) {
  const SpaceGroup& group = source.groups().front();
  return {*group.observation, *group.action, group.packed_digits};
}

std::vector<size_t> all_tasks(const HistorySource& source) {
  std::vector<size_t> tasks(source.tasks().size());
  std::iota(tasks.begin(), tasks.end(), size_t{0});
  return tasks;
}

ColumnWindows windows_of(const HistorySource& source, const ColumnWindowShape& shape,
                         const TaskScale& scale = {}) {
  return ColumnWindows({source, all_tasks(source), {spaces_of(source)}, "data"}, shape,
                       std::vector<TaskScale>(source.tasks().size(), scale));
}

std::string bytes_of_row(const Batch& batch, int64_t row) {
  std::string bytes;
  for (const at::Tensor& tensor :
       {batch.states, batch.actions, batch.rewards, batch.before_action, batch.before_reward, batch.begins})
    bytes += bytes_of(tensor[row]);
  return bytes;
}

/// All windows, in the order of their numbers, as loader_windows.py writes them.
std::string all_of(const BatchAssembler& windows) {
  std::string bytes;
  for (int64_t sample = 0; sample < windows.samples(); sample += 7) {
    std::vector<int64_t> samples(static_cast<size_t>(std::min<int64_t>(7, windows.samples() - sample)));
    std::iota(samples.begin(), samples.end(), sample);
    const Batch batch = windows.assemble(samples);
    for (int64_t row = 0; row < batch.size(); ++row) bytes += bytes_of_row(batch, row);
  }
  return bytes;
}

TEST(ColumnWindows, AreCountedInWords) {
  const TemporaryFolder folder;
  run_python(fmt::format(R"(
for name, tasks in ('one', 1), ('two', 2):
    with h5py.File(f'{}/{{name}}.hdf5', 'w') as f:
        f.attrs.update({{'adtrain-format': 2, 'observation-space': '{{"type": "Discrete", "n": 3}}',
                        'action-space': '{{"type": "Discrete", "n": 3}}'}})
        for task in range(tasks):
            for column in 'states', 'actions', 'rewards':
                f[f'{{task}}/{{column}}'] = np.zeros((20, 1), 'u1')
)",
                         folder.path().string()));
  const auto described = [&](const char* name, int64_t length) {
    const auto source = HistorySource::open(folder.path() / name);
    return windows_of(*source, {.length = length}).description();
  };
  EXPECT_EQ(described("one.hdf5", 20), "1 window of 1 history of 1 task, read in place");
  EXPECT_EQ(described("two.hdf5", 19), "4 windows of 2 histories of 2 tasks, read in place");
}

TEST(ColumnWindows, AreThoseOfXlandsLoader) {
  const WrittenHistories& written = WrittenHistories::get("xland");
  RandomStream random(written.seed);
  const int64_t length = 2 * (10 + random.below(60));
  const ColumnWindowShape shape{.length = length, .stride = length / 2, .margin = 1};
  const Loaded expected = loaded("xland", written.path, shape, 1);
  const auto source = HistorySource::open(written.path, {.format = {}, .cache_bytes = 30000});
  const ColumnWindows windows = windows_of(*source, shape);
  EXPECT_EQ(windows.samples(), expected.facts.at("windows"));
  EXPECT_TRUE(all_of(windows) == expected.bytes);
  EXPECT_LE(windows.bytes(), 30000);
}

TEST(ColumnWindows, OfTwoGroupsAreThoseOfEachGroupAlone) {
  const WrittenHistories& written = WrittenHistories::get("vintix");
  RandomStream random(written.seed);
  const auto source = HistorySource::open(written.path);
  ASSERT_GE(source->groups().size(), 2U);
  const ColumnWindowShape shape{.length = 4, .stride = 3, .margin = 1};
  std::vector<TaskSpaces> spaces;
  for (const SpaceGroup& group : source->groups()) spaces.push_back({*group.observation, *group.action, {}});
  std::vector<size_t> groups;
  for (const TaskHistories& task : source->tasks()) groups.push_back(task.group);
  const std::vector<TaskScale> scales(source->tasks().size());
  const ColumnWindows together({*source, all_tasks(*source), spaces, "data", groups}, shape, scales);
  std::vector<int64_t> samples;
  for (int i = 0; i < 40; ++i) samples.push_back(random.below(together.samples()));
  const Batch batch = together.assemble(samples);
  EXPECT_EQ(batch.size(), 40);
  const std::vector<int64_t> places(batch.places.const_data_ptr<int64_t>(),
                                    batch.places.const_data_ptr<int64_t>() + batch.places.numel());
  std::vector<int64_t> every(samples.size());
  std::iota(every.begin(), every.end(), 0);
  EXPECT_THAT(places, ::testing::UnorderedElementsAreArray(every));
  int64_t last = -1, row = 0;
  for (const Batch& part : batch.parts) {
    EXPECT_GT(part.group, last) << "in order of the groups";
    last = part.group;
    const auto group = static_cast<size_t>(part.group);
    std::vector<size_t> tasks;
    for (const size_t task : all_tasks(*source)) {
      if (groups[task] == group) tasks.push_back(task);
    }
    const ColumnWindows alone({*source, tasks, {spaces[group]}, "data"}, shape,
                              std::vector<TaskScale>(tasks.size()));
    // The number that each of the samples has among those of its group.
    std::map<std::vector<int64_t>, int64_t> numbers;
    const auto place = [](const ColumnWindow& window) {
      return std::vector<int64_t>{static_cast<int64_t>(window.task), static_cast<int64_t>(window.history),
                                  window.start};
    };
    for (int64_t i = 0; i < alone.samples(); ++i) numbers[place(alone.index().window(i))] = i;
    std::vector<int64_t> of_group;
    for (const int64_t sample : samples) {
      const ColumnWindow window = together.index().window(sample);
      if (groups[window.task] == group) of_group.push_back(numbers.at(place(window)));
    }
    const Batch expected = alone.assemble(of_group);
    ASSERT_EQ(part.size(), expected.size());
    for (const int64_t number : of_group) {
      const int64_t sample = samples.at(static_cast<size_t>(places.at(static_cast<size_t>(row++))));
      EXPECT_EQ(numbers.at(place(together.index().window(sample))), number) << "where row " << row << " was";
    }
    EXPECT_TRUE(part.states.equal(expected.states));
    EXPECT_TRUE(part.actions.equal(expected.actions));
    EXPECT_TRUE(part.rewards.equal(expected.rewards));
    EXPECT_TRUE(part.before_action.equal(expected.before_action));
    EXPECT_TRUE(part.begins.equal(expected.begins));
  }
}

TEST(ColumnWindows, AreThoseOfVintixsLoader) {
  const WrittenHistories& written = WrittenHistories::get("vintix");
  RandomStream random(written.seed);
  for (const char* task : {"mujoco/ant_v4", "metaworld/reach-v2"}) {
    for (const bool whole : {true, false}) {
      ColumnWindowShape shape{.length = 3 + random.below(20), .stride = 1 + random.below(9), .margin = 1};
      shape.episode_stride = whole ? 1 : 2 + random.below(3);
      if (!whole) shape.last_fraction = 0.3 + 0.6 * random.uniform();
      const Loaded expected = loaded("vintix", written.path / task, shape, 0.3);
      if (expected.facts.at("windows") == 0) continue;  // of a few lengths that may be drawn
      const auto source = HistorySource::open(written.path / task);
      TaskScale scale;
      scale.reward_scale = 0.3;
      measure_observations(*source, 0, scale);
      const ColumnWindows windows = windows_of(*source, shape, scale);
      EXPECT_EQ(windows.samples(), expected.facts.at("windows"));
      EXPECT_TRUE(all_of(windows) == expected.bytes) << task;

      const std::vector<double> mean = expected.facts.at("mean"), deviation = expected.facts.at("deviation");
      ASSERT_EQ(scale.mean.size(), mean.size());
      const Batch batch = windows.assemble(std::vector<int64_t>{0, windows.samples() - 1});
      for (size_t i = 0; i < mean.size(); ++i) {
        EXPECT_NEAR(scale.mean[i], mean[i], 1e-9 * (1 + std::abs(mean[i])));
        EXPECT_NEAR(scale.deviation[i], deviation[i], 1e-9 * deviation[i]);
        EXPECT_EQ(batch.state_mean[1][static_cast<int64_t>(i)].item<float>(),
                  static_cast<float>(scale.mean[i]));
        EXPECT_EQ(batch.state_deviation[0][static_cast<int64_t>(i)].item<float>(),
                  static_cast<float>(scale.deviation[i]));
      }
    }
  }
}

/// Two domains, each task with a scale, a stride and a share of its own; one is held out, and one is not
/// there.
TEST(ColumnWindows, OfAListAreThoseOfVintixsLoader) {
  const WrittenHistories& written = WrittenHistories::get("vintix");
  RandomStream random(written.seed);
  const TemporaryFolder folder;
  const auto list = folder.path() / "some.yaml";
  std::string yaml =
      "Door:\n  {path: metaworld/door-v2, group: metaworld, type: test, reward_scale: 1, episode_sparsity: "
      "1}\n"
      "Push:\n  {path: metaworld/push-v2, group: metaworld, type: test, reward_scale: 1, episode_sparsity: "
      "1}\n";
  for (const auto& [name, path] :
       {std::pair{"Ant-v4", "mujoco/ant_v4"}, std::pair{"Reach", "metaworld/reach-v2"}}) {
    yaml += fmt::format(
        "{}:\n  path: {}\n  group: {}\n  type: default\n  reward_scale: {}\n  episode_sparsity: {}\n"
        "  random_score: -1.5\n  expert_score: 1e3\n",
        name, path, std::string(path).substr(0, std::string(path).find('/')), 0.1 + random.uniform(),
        1 + random.below(2));
  }
  yaml += fmt::format("  episode_range: [{}, 0.9]\n", 0.3 * random.uniform());
  write_file(list, yaml);
  HistorySourceOptions options;
  options.list_folder = written.path;
  const auto source = HistorySource::open(list, options);
  ASSERT_EQ(source->tasks().size(), 3U) << "in the order of the list";
  EXPECT_EQ(source->tasks()[0].name, "Push");
  EXPECT_EQ(source->tasks()[0].trained, false);
  EXPECT_EQ(source->tasks()[1].name, "Ant-v4");
  EXPECT_EQ(source->tasks()[1].trained, true);
  EXPECT_EQ(source->groups()[source->tasks()[1].group].name, "mujoco");
  EXPECT_EQ(source->tasks()[2].attributes.at("expert_score"), "1e3");
  ASSERT_EQ(source->unrecorded().size(), 1U);
  EXPECT_EQ(source->unrecorded().front().name, "Door");

  const ColumnWindowShape shape{.length = 3 + random.below(4), .stride = 1 + random.below(4), .margin = 1};
  const Loaded expected = loaded("vintix_list", list, shape, 1, written.path);
  std::vector<TaskSpaces> spaces;
  for (const SpaceGroup& group : source->groups()) spaces.push_back({*group.observation, *group.action, {}});
  std::vector<TaskScale> scales;
  std::vector<size_t> groups;
  for (const size_t task : {1, 2}) {
    groups.push_back(source->tasks()[task].group);
    scales.emplace_back().reward_scale = reward_scale_of(source->tasks()[task]);
  }
  std::optional<ColumnWindows> windows;
  try {
    windows.emplace(ColumnWindows::Origin{*source, {1, 2}, spaces, "list", groups}, shape, scales);
  } catch (const DataError& error) {
    EXPECT_THAT(error.what(), HasSubstr("no window")) << "of a few lengths that may be drawn";
    return;
  }
  ASSERT_EQ(windows->samples(), expected.facts.at("windows"));
  std::string bytes;
  for (int64_t sample = 0; sample < windows->samples(); ++sample)
    bytes += bytes_of_row(windows->assemble(std::vector<int64_t>{sample}).parts.front(), 0);
  EXPECT_TRUE(bytes == expected.bytes);
}

/// Two histories of counted rows: observation and action are the step, the reward its half.
MemoryHistories counted(int64_t steps) {
  MemoryHistories source({{ColumnKind::kObservations, ElementType::kUint16, {2}},
                          {ColumnKind::kActions, ElementType::kFloat32, {}},
                          {ColumnKind::kRewards, ElementType::kFloat64, {}},
                          {ColumnKind::kTerminations, ElementType::kBool, {}},
                          {ColumnKind::kTruncations, ElementType::kBool, {}}});
  for (size_t task : {0, 1}) {
    HistoryWindow& history = source.add(task, steps);
    for (int64_t step = 0; step < steps; ++step) {
      set_number(history, ColumnKind::kObservations, 2 * step, static_cast<uint16_t>(60000 + step));
      set_number(history, ColumnKind::kObservations, 2 * step + 1, static_cast<uint16_t>(step));
      set_number(history, ColumnKind::kActions, step, static_cast<float>(step));
      set_number(history, ColumnKind::kRewards, step, 0.5 * static_cast<double>(step));
    }
    set_number<uint8_t>(history, ColumnKind::kTerminations, 3, 1);
    set_number<uint8_t>(history, ColumnKind::kTruncations, 6, 1);
  }
  return source;
}

const TaskSpaces kCounted = {Space::multi_discrete({2}, {65536}), Space::box({}, {-1e9}, {1e9}), {}};

ColumnWindows windows_of_counted(const HistorySource& source) {
  return ColumnWindows({source, {0, 1}, {kCounted}, "counted.hdf5"}, {.length = 4},
                       std::vector<TaskScale>(2));
}

TEST(ColumnWindows, KnowWhatCameBeforeAndWhereEpisodesBegin) {
  const MemoryHistories source = counted(10);
  const ColumnWindows windows = windows_of_counted(source);
  const Batch batch = windows.assemble(std::vector<int64_t>{0, 4, 7});
  EXPECT_TRUE(batch.of_any_space());
  EXPECT_FALSE(batch.next_states.defined());
  EXPECT_FALSE(batch.state_mean.defined());
  EXPECT_EQ(batch.states.scalar_type(), at::kInt) << "as tensors hold 16 bits without a sign";
  EXPECT_EQ(batch.states[1][0][0].item<int>(), 60004);
  EXPECT_TRUE(batch.actions[2].equal(at::tensor({0.F, 1.F, 2.F, 3.F}))) << "of the second task";
  EXPECT_TRUE(batch.before_action.equal(at::tensor({0.F, 3.F, 0.F})));
  EXPECT_TRUE(batch.before_reward.equal(at::tensor({0.F, 1.5F, 0.F})));
  EXPECT_TRUE(batch.rewards[1].equal(at::tensor({2.F, 2.5F, 3.F, 3.5F})));
  EXPECT_TRUE(batch.begins.equal(at::tensor({1, 0, 0, 0, 1, 0, 0, 1, 1, 0, 0, 0}, at::kByte).view({3, 4})));
}

/// The complaint of a window that reads all of a history after `change`.
template <class Change>
std::string complaint_after(const Change& change) {
  MemoryHistories source = counted(10);
  HistoryWindow& third = source.add(1, 12);
  change(third);
  const ColumnWindows windows = windows_of_counted(source);
  try {
    for (int64_t sample = 0; sample < windows.samples(); ++sample)
      windows.assemble(std::vector<int64_t>{sample});
  } catch (const DataError& error) {
    return error.what();
  }
  return "no complaint";
}

TEST(ColumnWindows, NeverGiveWhatIsNotFiniteOrNotInTheSpace) {
  EXPECT_EQ(complaint_after([](HistoryWindow&) {}), "no complaint");
  EXPECT_THAT(complaint_after([](HistoryWindow& history) {
                set_number(history, ColumnKind::kRewards, 7, std::numeric_limits<double>::quiet_NaN());
              }),
              AllOf(HasSubstr("counted.hdf5: task 1, history 1, step 7: found nan among the rewards"),
                    HasSubstr("expected a finite number"), HasSubstr("in adtrain score: score_tasks")));
  EXPECT_THAT(complaint_after([](HistoryWindow& history) {
                set_number(history, ColumnKind::kActions, 11, std::numeric_limits<float>::infinity());
              }),
              HasSubstr("history 1, step 11: found inf among the actions"));
  MemoryHistories bytes({{ColumnKind::kObservations, ElementType::kUint8, {}},
                         {ColumnKind::kActions, ElementType::kInt32, {}},
                         {ColumnKind::kRewards, ElementType::kFloat32, {}}});
  HistoryWindow& history = bytes.add(0, 20);
  set_number<uint8_t>(history, ColumnKind::kObservations, 9, 5);
  set_number<int32_t>(history, ColumnKind::kActions, 15, -1);
  const ColumnWindows windows({bytes, {0}, {{Space::discrete(5), Space::discrete(3), {}}}, "bytes"},
                              {.length = 5}, std::vector<TaskScale>(1));
  const auto complaint = [&](int64_t sample) {
    try {
      windows.assemble(std::vector<int64_t>{sample});
    } catch (const DataError& error) {
      return std::string(error.what());
    }
    return std::string("none");
  };
  EXPECT_EQ(complaint(4), "none");
  EXPECT_THAT(complaint(5), HasSubstr("step 9: found 5 among the observations; expected Discrete(5)"));
  EXPECT_THAT(complaint(15), HasSubstr("step 15: found -1 among the actions; expected Discrete(3)"));
}

TEST(ColumnWindows, SpacesAreThoseOfTheStoredNumbers) {
  const MemoryHistories source = counted(10);
  const auto complaint = [&](const TaskSpaces& spaces) {
    try {
      const ColumnWindows windows({source, {0}, {spaces}, "x"}, {.length = 4}, std::vector<TaskScale>(1));
    } catch (const DataError& error) {
      return std::string(error.what());
    }
    return std::string("none");
  };
  EXPECT_EQ(complaint(kCounted), "none");
  EXPECT_THAT(complaint({Space::multi_discrete({3}, {9}), kCounted.action, {}}),
              AllOf(HasSubstr("observations are uint16 (2)"), HasSubstr("MultiDiscrete((3,), 9 values)")));
  EXPECT_THAT(complaint({kCounted.observation, Space::discrete(4), {}}),
              AllOf(HasSubstr("actions are float32 ()"), HasSubstr("of whole numbers")));
}

/// Whatever the number of workers and ranks, the global batches are the same.
TEST(ColumnWindows, AreReadByAnyNumberOfThreadsAndRanks) {
  const WrittenHistories& written = WrittenHistories::get("xland");
  const auto source = HistorySource::open(written.path, {.format = {}, .cache_bytes = 100000});
  const ColumnWindows windows = windows_of(*source, {.length = 50, .stride = 3});
  const auto rows_of = [&](int64_t rank, int64_t ranks, int64_t workers) {
    DataOptions options;
    options.num_workers = workers;
    const auto batches = BatchSource::create(
        {.windows = windows,
         .order = SampleOrder(windows.samples(), 5),
         .share = {.rank = rank, .world_size = ranks, .micro_batch = 8 / ranks, .accumulation = 1}},
        options, at::kCPU);
    std::vector<std::string> rows;
    for (int step = 0; step < 6; ++step) rows.push_back(bytes_of(batches->next().states));
    return rows;
  };
  const std::vector<std::string> alone = rows_of(0, 1, 0);
  EXPECT_EQ(rows_of(0, 1, 3), alone);
  const std::vector<std::string> first = rows_of(0, 2, 2), second = rows_of(1, 2, 0);
  for (size_t step = 0; step < alone.size(); ++step) EXPECT_EQ(first[step] + second[step], alone[step]);
}

}  // namespace
}  // namespace adtrain
