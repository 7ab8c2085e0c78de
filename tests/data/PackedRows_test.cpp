#include "data/PackedRows.h"

#include <map>
#include <numeric>
#include <set>

#include <ATen/ATen.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/Error.h"
#include "data/BatchSource.h"
#include "data/RandomColumns.h"
#include "data/formats/WrittenHistories.h"

namespace adtrain {
namespace {

constexpr int64_t kRowLength = 100;

std::vector<ShortHistory> random_histories(RandomStream& random) {
  std::vector<ShortHistory> histories;
  for (int64_t i = 0, count = 1 + random.below(300); i < count; ++i)
    histories.push_back({3 * i, 1 + random.below(kRowLength - 1), random.below(3)});
  return histories;
}

std::vector<int64_t> histories_in(const PackedRows& rows, int64_t row) {
  std::vector<int64_t> histories;
  for (const PackedSegment& segment : rows.row(row)) histories.push_back(segment.history);
  return histories;
}

std::vector<std::vector<int64_t>> all_rows(const PackedRows& rows) {
  std::vector<std::vector<int64_t>> all;
  for (int64_t row = 0; row < rows.size(); ++row) all.push_back(histories_in(rows, row));
  return all;
}

TEST(PackedRows, HoldEachHistoryOnceEndToEnd) {
  const uint64_t seed = fresh_seed();
  RandomStream random(seed);
  for (int round = 0; round < 100; ++round) {
    const std::vector<ShortHistory> histories = random_histories(random);
    std::map<int64_t, ShortHistory> left;
    for (const ShortHistory& history : histories) left[history.history] = history;
    const PackedRows rows(histories, kRowLength, random.next());
    int64_t real = 0;
    std::map<size_t, int> half_empty;  // of each group
    for (int64_t row = 0; row < rows.size(); ++row) {
      int64_t end = 0;
      std::set<size_t> groups;
      for (const PackedSegment& segment : rows.row(row)) {
        EXPECT_EQ(segment.column, end);
        end += segment.length;
        const auto found = left.extract(segment.history);
        ASSERT_FALSE(found.empty()) << "a history twice";
        EXPECT_EQ(segment.length, found.mapped().length);
        groups.insert(found.mapped().group);
      }
      EXPECT_EQ(groups.size(), 1U);
      EXPECT_LE(end, kRowLength);
      EXPECT_EQ(rows.filled(row), end);
      if (2 * end <= kRowLength) ++half_empty[*groups.begin()];
      real += end;
    }
    EXPECT_TRUE(left.empty());
    EXPECT_EQ(rows.transitions(), real);
    for (const auto& [group, count] : half_empty) EXPECT_LE(count, 1) << "two rows that fit into one";
  }
}

TEST(PackedRows, AreAFunctionOfLengthsAndSeed) {
  RandomStream random(fresh_seed());
  std::vector<ShortHistory> histories;
  for (int64_t i = 0; i < 60; ++i) histories.push_back({i, 30, 0});
  std::vector<ShortHistory> reversed(histories.rbegin(), histories.rend());
  const uint64_t seed = random.next();
  const auto rows = all_rows({histories, kRowLength, seed});
  EXPECT_EQ(rows.size(), 20U);
  EXPECT_EQ(rows, all_rows({reversed, kRowLength, seed}));
  EXPECT_NE(rows, all_rows({histories, kRowLength, seed + 1}));
}

TEST(PackedRows, PutAHistoryWhereItFitsBest) {
  const PackedRows rows({{0, 60, 0}, {1, 70, 0}, {2, 30, 0}, {3, 25, 0}, {4, 15, 0}}, kRowLength, 1);
  EXPECT_EQ(all_rows(rows), (std::vector<std::vector<int64_t>>{{1, 2}, {0, 3, 4}}));
  EXPECT_EQ(PackedRows().size(), 0);
}

/// Random histories, packed; and their windows of one length without packing.
class PackedColumns {
 public:
  explicit PackedColumns(RandomStream& random) : columns(random) { columns.pack(random); }

  ColumnWindows packed() const { return columns.windows(columns.source); }
  /// What a part of a row is alone: a batch of one window of its length.
  Batch alone(const RowPart& part) const {
    RandomColumns of_length = columns;
    of_length.shape.packed = false;
    of_length.shape.length = part.length;
    of_length.shape.stride = 1;
    const ColumnWindows windows = of_length.windows(columns.source);
    for (int64_t sample = 0; sample < windows.samples(); ++sample) {
      const ColumnWindow window = windows.index().window(sample);
      if (window.task == part.window.task && window.history == part.window.history &&
          window.start == part.window.start)
        return windows.assemble(std::vector<int64_t>{sample});
    }
    throw std::logic_error("no such window");
  }

  RandomColumns columns;
};

/// Calls check(packed windows) for some random histories of which some are packed.
template <class Check>
void with_packed_histories(int rounds, const Check& check) {
  const uint64_t seed = fresh_seed();
  RandomStream random(seed);
  int checked = 0;
  for (int round = 0; round < rounds; ++round) {
    const PackedColumns histories(random);
    SCOPED_TRACE(histories.columns.text());
    try {
      const ColumnWindows windows = histories.packed();
      check(histories, windows, random);
      if (windows.index().packed().size() > 0) ++checked;
    } catch (const DataError& error) {
      EXPECT_THAT(error.what(), testing::HasSubstr("no window"));
    }
  }
  EXPECT_GT(checked, 0);
}

bool same(const at::Tensor& found, const at::Tensor& expected) {
  return found.scalar_type() == expected.scalar_type() && found.equal(expected);
}

TEST(PackedWindows, AreThoseOfEachHistoryAloneAndThenPadding) {
  with_packed_histories(30, [](const PackedColumns& histories, const ColumnWindows& windows, RandomStream&) {
    std::vector<int64_t> every(static_cast<size_t>(std::min<int64_t>(windows.samples(), 40)));
    std::iota(every.begin(), every.end(), windows.samples() - std::ssize(every));
    const Batch batch = windows.assemble(every);
    ASSERT_TRUE(batch.packed());
    const int64_t length = batch.actions.size(1);
    for (size_t i = 0; i < every.size(); ++i) {
      const auto row = static_cast<int64_t>(i);
      int64_t end = 0;
      for (const RowPart& part : windows.index().row(every[i])) {
        ASSERT_EQ(part.column, end);
        end += part.length;
        const Batch alone = histories.alone(part);
        const auto found = [&](const at::Tensor& of_rows) {
          return of_rows[row].narrow(0, part.column, part.length);
        };
        EXPECT_TRUE(same(found(batch.states), alone.states[0]));
        EXPECT_TRUE(same(found(batch.actions), alone.actions[0]));
        EXPECT_TRUE(same(found(batch.rewards), alone.rewards[0]));
        EXPECT_TRUE(same(found(batch.begins), alone.begins[0]));
        const auto one_later = [&](const at::Tensor& before, const at::Tensor& values) {
          return at::cat({before, values[0].narrow(0, 0, part.length - 1)});
        };
        EXPECT_TRUE(same(found(batch.before_action), one_later(alone.before_action, alone.actions)));
        EXPECT_TRUE(same(found(batch.before_reward), one_later(alone.before_reward, alone.rewards)));
        EXPECT_TRUE(found(batch.segment_first).eq(part.column).all().item<bool>());
        if (!batch.state_mean.defined()) continue;
        EXPECT_TRUE(found(batch.state_mean).eq(alone.state_mean).all().item<bool>());
        EXPECT_TRUE(found(batch.state_deviation).eq(alone.state_deviation).all().item<bool>());
      }
      EXPECT_EQ(batch.filled[row].item<int64_t>(), end);
      EXPECT_EQ(windows.filled(every[i]), end);
      if (end == length) continue;
      const auto padding = [&](const at::Tensor& of_rows) {
        return of_rows[row].narrow(0, end, length - end);
      };
      EXPECT_TRUE(same(padding(batch.segment_first), at::arange(end, length, at::kInt)));
      EXPECT_TRUE(padding(batch.actions).eq(batch.actions[row][end - 1]).all().item<bool>());
      EXPECT_TRUE(padding(batch.states).eq(batch.states[row][end - 1]).all().item<bool>());
      for (const at::Tensor& zeros : {batch.rewards, batch.before_reward, batch.begins})
        EXPECT_FALSE(padding(zeros).any().item<bool>());
    }
  });
}

TEST(PackedWindows, TakeEachShortHistoryOnceAnEpoch) {
  with_packed_histories(60, [](const PackedColumns& histories, const ColumnWindows& windows, RandomStream&) {
    const ColumnWindowIndex& index = windows.index();
    std::map<std::pair<size_t, size_t>, int64_t> times;
    for (int64_t sample = index.windows(); sample < windows.samples(); ++sample) {
      for (const RowPart& part : index.row(sample)) {
        const KeptSteps kept = index.kept(part.window.task, part.window.history);
        EXPECT_EQ(part.length, kept.size() - 2 * index.shape().margin);
        EXPECT_EQ(part.window.start, index.shape().margin);
        ++times[{part.window.task, part.window.history}];
      }
    }
    for (const size_t task : histories.columns.trained) {
      for (size_t history = 0; history < histories.columns.source.tasks()[task].steps.size(); ++history) {
        const int64_t steps = index.kept(task, history).size() - 2 * index.shape().margin;
        const bool is_short = steps > 0 && steps < index.shape().length;
        EXPECT_EQ((times[{task, history}]), is_short ? 1 : 0);
      }
    }
  });
}

TEST(PackedWindows, AreTheSameOnAnyNumberOfRanksAndAfterResuming) {
  with_packed_histories(20, [](const PackedColumns&, const ColumnWindows& windows, RandomStream& random) {
    const int64_t resumed = 12 * random.below(5);
    const auto source = [&](int64_t rank, int64_t ranks, int64_t first) {
      DataOptions options;
      options.num_workers = random.below(2);
      return BatchSource::create(
          {.windows = windows,
           .order = SampleOrder(windows.samples(), 3),
           .share = {.rank = rank, .world_size = ranks, .micro_batch = 12 / ranks / 2, .accumulation = 2},
           .first_sample = first},
          options, at::kCPU);
    };
    const auto alone = source(0, 1, 0);
    for (int64_t drawn = 0; drawn < resumed; drawn += 6) alone->next();
    const auto first = source(0, 2, resumed), second = source(1, 2, resumed);
    int64_t targets = 0;
    for (int micro_step = 0; micro_step < 4; ++micro_step) {
      const Batch whole = alone->next(), one = first->next(), other = second->next();
      const auto both = [](const at::Tensor& a, const at::Tensor& b) { return at::cat({a, b}); };
      EXPECT_TRUE(whole.states.equal(both(one.states, other.states)));
      EXPECT_TRUE(whole.segment_first.equal(both(one.segment_first, other.segment_first)));
      EXPECT_TRUE(whole.filled.equal(both(one.filled, other.filled)));
      targets = (micro_step % 2 == 0 ? 0 : targets) + whole.filled.sum().item<int64_t>();
      const bool last_of_step = micro_step % 2 == 1;
      EXPECT_TRUE(one.step_targets.equal(whole.step_targets));
      EXPECT_TRUE(other.step_targets.equal(whole.step_targets));
      EXPECT_TRUE(!last_of_step || whole.step_targets.item<int64_t>() == targets) << "of both micro-steps";
    }
  });
}

TEST(PackedWindows, ATaskWithoutAStepIsNamed) {
  MemoryHistories source({{ColumnKind::kObservations, ElementType::kUint8, {}},
                          {ColumnKind::kActions, ElementType::kUint8, {}},
                          {ColumnKind::kRewards, ElementType::kFloat32, {}}});
  source.add(0, 9);
  source.add(1, 2);
  const ColumnWindowShape shape = {.length = 10, .margin = 1, .packed = true};
  EXPECT_EQ(ColumnWindowIndex(source, {0}, shape).size(), 1);
  try {
    const ColumnWindowIndex index(source, {0, 1}, shape);
    FAIL() << "no complaint";
  } catch (const DataError& error) {
    EXPECT_THAT(error.what(),
                testing::HasSubstr("task 1: no window: 2 steps of its longest history are used; "
                                   "expected 3 at least, one more than twice window_margin"));
  }
}

}  // namespace
}  // namespace adtrain
