#include "data/HeldHistories.h"

#include <atomic>
#include <thread>

#include <ATen/ATen.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/Error.h"
#include "base/Random.h"
#include "data/RandomColumns.h"
#include "data/formats/WrittenHistories.h"

namespace adtrain {
namespace {

const HeldHistories::Check kFine = [](size_t, size_t, int64_t, const HistoryWindow&) {
  return std::string();
};

std::vector<int64_t> some_of(int64_t samples, RandomStream& random) {
  std::vector<int64_t> chosen(9);
  for (int64_t& sample : chosen) sample = random.below(static_cast<uint32_t>(samples));
  return chosen;
}

/// Filled by some sharers as processes would, one after the other in any order.
void fill(HeldHistories& held, size_t sharers) {
  SharedBytes memory = own_bytes(held.bytes());
  memory.sharers = sharers;
  for (size_t sharer = sharers; sharer-- > 0;) {
    memory.sharer = sharer;
    std::atomic<size_t> histories = 0;
    EXPECT_EQ(held.load(memory, 2, kFine, [&] { ++histories; }), "");
    EXPECT_EQ(histories, memory.own_pieces(held.held_histories()));
  }
}

TEST(HeldHistories, GiveTheWindowsOfTheirSource) {
  const uint64_t seed = fresh_seed();
  RandomStream random(seed);
  int compared = 0;
  for (int round = 0; round < 200; ++round) {
    const RandomColumns columns(random);
    SCOPED_TRACE(columns.text());
    HeldHistories held = columns.holding();
    fill(held, 1 + random.below(3));
    try {
      const ColumnWindows expected = columns.windows(columns.source), found = columns.windows(held, &held);
      ASSERT_EQ(found.samples(), expected.samples());
      const std::vector<int64_t> samples = some_of(found.samples(), random);
      EXPECT_EQ(difference(found.assemble(samples), expected.assemble(samples)), "");
      EXPECT_EQ(found.held_columns(), &found);
      EXPECT_EQ(expected.held_columns(), nullptr);
      ++compared;
    } catch (const DataError& error) {
      EXPECT_THAT(error.what(), testing::HasSubstr("no window"));
    }
  }
  EXPECT_GT(compared, 100);
}

/// A source that counts what is asked of it.
class CountingSource final : public HistorySource {
 public:
  explicit CountingSource(const HistorySource& source) : source_(source) {}
  HistoryFormat format() const override { return source_.format(); }
  std::string description() const override { return source_.description(); }
  const std::vector<SpaceGroup>& groups() const override { return source_.groups(); }
  const std::vector<TaskHistories>& tasks() const override { return source_.tasks(); }
  size_t cached_bytes() const override { return 0; }
  mutable std::atomic<int> reads = 0;

 protected:
  void read_columns(size_t task, size_t history, int64_t first, int64_t count, const ColumnKinds& kinds,
                    HistoryWindow& window) const override {
    ++reads;
    source_.read(task, history, first, count, kinds, window);
  }

 private:
  const HistorySource& source_;
};

TEST(HeldHistories, AskTheSourceForWhatTheyDoNotHoldAlone) {
  const WrittenHistories& written = WrittenHistories::get("xland");
  const auto opened = HistorySource::open(written.path);
  const CountingSource source(*opened);
  const int64_t steps = source.tasks()[0].steps[0];
  HeldHistories held(source, {{.task = 0, .histories = 1, .steps = steps - 1}}, ColumnWindows::kinds());
  EXPECT_EQ(held.held_histories(), 1U);
  // 25 bytes, action, reward of two bytes, end of an episode; each column begins at a multiple of 64 bytes.
  size_t expected = 0;
  for (const size_t row : {25, 1, 2, 1}) expected += (static_cast<size_t>(steps - 1) * row + 63) / 64 * 64;
  EXPECT_EQ(held.bytes(), expected);
  held.load(own_bytes(held.bytes()), 1, kFine);
  const auto reads_of = [&](size_t history, int64_t first, int64_t count, const ColumnKinds& kinds) {
    const int before = source.reads;
    HistoryWindow found, right;
    held.read(0, history, first, count, kinds, found);
    const int asked = source.reads - before;
    source.read(0, history, first, count, kinds, right);
    EXPECT_EQ(found.columns.size(), right.columns.size());
    for (size_t i = 0; i < right.columns.size(); ++i) {
      EXPECT_EQ(found.columns[i].type, right.columns[i].type);
      EXPECT_EQ(found.columns[i].bytes, right.columns[i].bytes);
    }
    return asked;
  };
  EXPECT_EQ(reads_of(0, 0, steps - 1, ColumnWindows::kinds()), 0);
  EXPECT_EQ(reads_of(0, 7, 20, {ColumnKind::kRewards, ColumnKind::kEnds}), 0);
  EXPECT_EQ(reads_of(0, steps - 10, 10, ColumnWindows::kinds()), 1) << "the last step is not held";
  EXPECT_EQ(reads_of(1, 0, 5, ColumnWindows::kinds()), 1) << "another history";
  EXPECT_EQ(reads_of(0, 0, 5, {ColumnKind::kExpertActions}), 1) << "a column that is not held";
}

TEST(HeldHistories, SayWhatIsWrongFirstAndHoldItAllTheSame) {
  MemoryHistories source({{ColumnKind::kObservations, ElementType::kUint8, {}},
                          {ColumnKind::kActions, ElementType::kUint8, {}},
                          {ColumnKind::kRewards, ElementType::kFloat32, {}}});
  for (size_t task = 0; task < 8; ++task) source.add(task, 30);
  std::vector<HeldHistories::Part> parts;
  for (size_t task = 0; task < 8; ++task) parts.push_back({task, 1, 30});
  HeldHistories held(source, parts, ColumnWindows::kinds());
  const auto wrong = [](size_t task, size_t, int64_t, const HistoryWindow&) {
    return task == 3 || task == 6 ? fmt::format("task {}", task) : std::string();
  };
  EXPECT_EQ(held.load(own_bytes(held.bytes()), 3, wrong), "task 3");
  EXPECT_EQ(held.window(7, 0, 5, 20).columns.front().bytes.size(), 20U);
}

}  // namespace
}  // namespace adtrain
