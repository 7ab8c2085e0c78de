#include "data/WindowIndex.h"

#include <set>
#include <tuple>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/Error.h"

namespace adtrain {
namespace {

TEST(WindowIndex, CountsThePublishedDataSets) {
  // Darkroom: 73 training tasks × 100 streams and 8 held-out tasks × 1 stream, 1000 steps.
  EXPECT_EQ(WindowIndex(7300, {.steps = 1000, .horizon = 20, .length = 80}).size(), 6723300);
  EXPECT_EQ(WindowIndex(8, {.steps = 1000, .horizon = 20, .length = 80}).size(), 7368);
  EXPECT_EQ(WindowIndex(7300, {.steps = 1000, .horizon = 20, .length = 240}).size(), 5555300);
  EXPECT_EQ(WindowIndex(8, {.steps = 1000, .horizon = 20, .length = 240}).size(), 6088);
}

TEST(WindowIndex, PlainSamplesAreNumberedHistoryByHistory) {
  const WindowIndex index(3, {.steps = 100, .horizon = 20, .length = 30});
  const Window window = index.window(71 * 2 + 5);
  EXPECT_EQ(window.history, 2);
  EXPECT_EQ(window.start, 5);
}

TEST(WindowIndex, EverySubHistoryKeepsEveryKthEpisode) {
  const WindowIndex index(1, {.steps = 7 * 10, .horizon = 10, .episode_stride = 3, .length = 15});
  EXPECT_EQ(index.sub_history_steps(0), 30);  // episodes 0, 3, 6
  EXPECT_EQ(index.sub_history_steps(1), 20);  // episodes 1, 4
  EXPECT_EQ(index.sub_history_steps(2), 20);  // episodes 2, 5
  EXPECT_EQ(index.original_step(0, 0), 0);
  EXPECT_EQ(index.original_step(0, 15), 35);
  EXPECT_EQ(index.original_step(2, 9), 29);
  EXPECT_EQ(index.original_step(2, 10), 50);
  EXPECT_EQ(index.size(), 16 + 6 + 6);
  // Every window is met once and stays inside its sub-history.
  std::set<std::tuple<int64_t, int64_t>> windows;
  for (int64_t i = 0; i < index.size(); ++i) {
    const Window window = index.window(i);
    EXPECT_LE(window.start + 15, index.sub_history_steps(window.phase));
    windows.insert({window.phase, window.start});
  }
  EXPECT_EQ(static_cast<int64_t>(windows.size()), index.size());
}

TEST(WindowIndex, CompressedSamplesAreQueriesWithTheEndOfARegionAmongThem) {
  const WindowIndex index(2, {.steps = 25, .horizon = 5, .region = 10});
  EXPECT_EQ(index.size(), 2 * (11 + 11 + 5));
  EXPECT_EQ(index.window(10).start, 0);
  EXPECT_EQ(index.window(10).current, 10);  // the end of the first region
  EXPECT_EQ(index.window(11).start, 10);
  EXPECT_EQ(index.window(11).current, 0);
  EXPECT_EQ(index.window(26).start, 20);
  EXPECT_EQ(index.window(26).current, 4);
  EXPECT_EQ(index.window(27).history, 1);
}

TEST(WindowIndex, WholeRegionsAreOneSampleEach) {
  const WindowIndex index(2, {.steps = 25, .horizon = 5, .region = 10, .whole_regions_only = true});
  EXPECT_EQ(index.size(), 4);
  EXPECT_EQ(index.window(3).history, 1);
  EXPECT_EQ(index.window(3).start, 10);
  EXPECT_EQ(index.window(3).current, 10);
}

TEST(WindowIndex, TooShortHistoriesAreADataErrorThatNamesTheSettings) {
  try {
    WindowIndex(5, {.steps = 100, .horizon = 20, .episode_stride = 5, .length = 80});
    FAIL() << "expected a DataError";
  } catch (const DataError& error) {
    EXPECT_THAT(error.what(),
                testing::AllOf(testing::HasSubstr("20 steps"), testing::HasSubstr("80 transitions"),
                               testing::HasSubstr("n_transit"), testing::HasSubstr("episode_stride")));
  }
}

}  // namespace
}  // namespace adtrain
