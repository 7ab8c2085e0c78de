#include <ctime>
#include <set>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/Clock.h"
#include "base/Random.h"
#include "data/ColumnWindows.h"
#include "data/SampleOrder.h"
#include "data/formats/HistorySource.h"
#include "data/formats/WrittenHistories.h"

namespace adtrain {
namespace {

namespace fs = std::filesystem;

/// A file of the size and shapes of XLand-100B, of which the disk holds next to nothing: only one chunk was
/// written, behind 326 GB.
constexpr const char* kSparseFile = R"(
def write(path, tasks, apart):
    with h5py.File(path, 'w') as f:
        space = h5py.h5s.create_simple((326 * 10**9,))
        options = h5py.h5p.create(h5py.h5p.DATASET_CREATE)
        options.set_alloc_time(h5py.h5d.ALLOC_TIME_EARLY)
        options.set_fill_time(h5py.h5d.FILL_TIME_NEVER)
        h5py.h5d.create(f.id, b'filler', h5py.h5t.NATIVE_UINT8, space, options)
        for task in range(tasks):
            g = f.create_group(str(task))
            g.attrs['env-id'] = 'XLand-MiniGrid-R1-13x13'
            g.attrs['benchmark-id'] = 'medium-1m'
            g.attrs['ruleset-id'] = task
            for name, kind, row in apart or COLUMNS:
                g.create_dataset(name, (32, 121856, *row), kind, chunks=(1, 4096, *row), compression='gzip',
                                 compression_opts=6)
        f[f'{tasks - 1}/states'][31, 118784:] = np.arange(3072 * 25, dtype='u1').reshape(3072, 5, 5)

COLUMNS = [('states', 'u1', (5, 5)), ('actions', 'u1', ()), ('rewards', 'f2', ()), ('dones', '?', ()),
           ('expert_actions', 'u1', ())]
)";

TEST(LargeHistories, OpeningReadsShapesAlone) {
  const TemporaryFolder folder;
  const fs::path path = folder.path() / "sparse.hdf5";
  run_python(fmt::format("{}\nwrite('{}', 150, None)\n", kSparseFile, path.string()));
  ASSERT_GT(fs::file_size(path), 326'000'000'000U);
  const Stopwatch watch;
  const auto source = HistorySource::open(path);
  fmt::print("opened in {:.3f} s\n", watch.seconds());
  EXPECT_LT(watch.seconds(), 10);
  EXPECT_EQ(source->total_steps(), int64_t{150} * 32 * 121856);
  const HistoryWindow last = source->window(149, 31, 121856 - 3072, 3072);
  const Column& states = *last.find(ColumnKind::kObservations);
  for (size_t i = 0; i < states.bytes.size(); ++i) ASSERT_EQ(states.bytes[i], static_cast<uint8_t>(i));
  const HistoryWindow unwritten = source->window(3, 2, 100'000, 10);
  EXPECT_THAT(unwritten.find(ColumnKind::kRewards)->bytes, testing::Each(0));
}

/// Chunks of one step each, in number more than one request to the reading process holds. All but a few were
/// never written, since HDF5 takes time that grows with the square of those that were.
TEST(LargeHistories, AHistoryOfManyChunksIsRead) {
  const TemporaryFolder folder;
  const fs::path path = folder.path() / "chunks.hdf5";
  run_python(fmt::format(R"(
with h5py.File('{}', 'w') as f:
    f.attrs['adtrain-format'] = 2
    g = f.create_group('0')
    for number, name in enumerate(['states', 'actions', 'rewards', 'terminations', 'truncations']):
        d = g.create_dataset(name, (25000, 1), 'f4', chunks=(1, 1), fillvalue=-number)
        for step in 0, 511, 512, 513, 24999:
            d[step] = number + 10 * step
)",
                         path.string()));
  const auto source = HistorySource::open(path);
  const HistoryWindow window = source->window(0, 0, 0, 25000);
  ASSERT_EQ(window.columns.size(), 5U);
  const std::set<int> written = {0, 511, 512, 513, 24999};
  for (int number = 0; number < 5; ++number) {
    for (int step = 0; step < 25000; ++step)
      ASSERT_EQ(window.columns[static_cast<size_t>(number)].number(step),
                written.contains(step) ? number + 10 * step : -number);
  }
}

/// All 28 876 tasks of XLand-100B: minutes of h5py.
TEST(LargeHistories, DISABLED_OpeningAllOfXland100B) {
  const TemporaryFolder folder;
  const fs::path path = folder.path() / "sparse.hdf5";
  run_python(fmt::format("{}\nwrite('{}', 28876, None)\n", kSparseFile, path.string()));
  const Stopwatch watch;
  const auto source = HistorySource::open(path);
  fmt::print("opened {} steps in {:.2f} s\n", source->total_steps(), watch.seconds());
}

double thread_seconds() {
  timespec now{};
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
  return static_cast<double>(now.tv_sec) + 1e-9 * static_cast<double>(now.tv_nsec);
}

/// A few tasks of XLand-100B's shape whose observations repeat as an agent's views do (about 3 bytes a step).
void write_repeated_views(const fs::path& path) {
  run_python(fmt::format(R"(
random = np.random.default_rng(0)
with h5py.File('{}', 'w') as f:
    for task in range(3):
        g = f.create_group(str(task))
        g.attrs['env-id'], g.attrs['benchmark-id'], g.attrs['ruleset-id'] = 'XLand-MiniGrid-R1-9x9', 'trivial-1m', task
        streams, steps = 32, 121856
        views = random.integers(0, 117, (300, 5, 5)) * (random.random((300, 5, 5)) < .15) + 39
        view = np.repeat(random.integers(0, 300, (streams, steps // 2)), 2, axis=1)
        actions = random.integers(0, 6, (streams, steps)) * (random.random((streams, steps)) < .6)
        done = random.random((streams, steps)) < 1 / 22
        reward = np.where(done, 1 - .9 * random.integers(1, 243, (streams, steps)) / 243, 0)
        for name, values in dict(states=views[view].astype('u1'), actions=actions.astype('u1'),
                                 rewards=reward.astype('f2'), dones=done, expert_actions=actions.astype('u1')).items():
            g.create_dataset(name, data=values, chunks=(1, 4096, *values.shape[2:]), compression='gzip',
                             compression_opts=6)
)",
                         path.string()));
}

/// Windows of 4096 steps at random starts. The cache is too small to help.
TEST(LargeHistories, DISABLED_SpeedOfRandomWindows) {
  const TemporaryFolder folder;
  const fs::path path = folder.path() / "xland.hdf5";
  write_repeated_views(path);
  const auto source = HistorySource::open(path, {.format = {}, .cache_bytes = 32 << 20});
  fmt::print("{:.2f} bytes a step in the file\n",
             static_cast<double>(fs::file_size(path)) / static_cast<double>(source->total_steps()));
  RandomStream random(1);
  HistoryWindow window;
  constexpr int64_t kLength = 4096;
  const auto draw = [&](int windows) {
    for (int i = 0; i < windows; ++i) {
      const auto task = random.below(3), history = random.below(32), first = random.below(121856 - kLength);
      source->read(task, history, first, kLength, ColumnKinds::all(), window);
    }
  };
  for (const int windows : {100, 1500, 1500}) {  // at first the places of most chunks have to be asked for
    const Stopwatch watch;
    const double before = thread_seconds();
    draw(windows);
    const double cpu = thread_seconds() - before;
    fmt::print("{} windows: {:.2f} M transitions a second of this thread's time, {:.2f} M by the clock\n",
               windows, 1e-6 * windows * kLength / cpu, 1e-6 * windows * kLength / watch.seconds());
  }
}

/// The same windows as batches of the training's feed, checked and in tensors.
TEST(LargeHistories, DISABLED_SpeedOfTrainingWindows) {
  const TemporaryFolder folder;
  const fs::path path = folder.path() / "xland.hdf5";
  write_repeated_views(path);
  const auto source = HistorySource::open(path, {.format = {}, .cache_bytes = 32 << 20});
  const SpaceGroup& group = source->groups().front();
  constexpr int64_t kLength = 4096, kRows = 8;
  const ColumnWindows windows(
      {*source, {0, 1, 2}, {{*group.observation, *group.action, group.packed_digits}}, path.string()},
      {.length = kLength, .stride = kLength / 2, .margin = 1}, std::vector<TaskScale>(3));
  const SampleOrder order(windows.samples(), 1);
  int64_t position = 0;
  for (const int batches : {10, 200, 200}) {
    const Stopwatch watch;
    const double before = thread_seconds();
    for (int batch = 0; batch < batches; ++batch) {
      std::vector<int64_t> samples;
      for (int64_t row = 0; row < kRows; ++row) samples.push_back(order.sample_at(position++));
      windows.assemble(samples);
    }
    const double steps = 1e-6 * static_cast<double>(batches * kRows * kLength);
    fmt::print("{} batches: {:.2f} M transitions a second of this thread's time, {:.2f} M by the clock\n",
               batches, steps / (thread_seconds() - before), steps / watch.seconds());
  }
}

}  // namespace
}  // namespace adtrain
