#include "data/TransitionWindows.h"

#include <algorithm>
#include <set>

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include "base/Random.h"
#include "data/HistorySet.h"

namespace adtrain {
namespace {

/// Whether cell (row, column) of the batch holds `transition`.
void expect_transition(const Batch& batch, int64_t row, int64_t column, const Transition& transition) {
  for (int64_t axis = 0; axis < 2; ++axis) {
    EXPECT_EQ(batch.states[row][column][axis].item<int>(), transition.state[axis]);
    EXPECT_EQ(batch.next_states[row][column][axis].item<int>(), transition.next_state[axis]);
  }
  EXPECT_EQ(batch.actions[row][column].item<int>(), transition.action);
  EXPECT_EQ(batch.rewards[row][column].item<float>(), transition.reward);
}

TEST(TransitionWindows, PlainRowsAreConsecutiveTransitions) {
  const HistorySet histories = HistorySet::random(3, 50, {9, 5}, 1);
  const TransitionWindows assembler(histories, {.steps = 50, .horizon = 10, .length = 12});
  const std::vector<int64_t> samples = {0, 38, 39, 3 * 39 - 1};
  const Batch batch = assembler.assemble(samples);
  ASSERT_EQ(batch.size(), 4);
  EXPECT_FALSE(batch.compressed());
  for (int64_t i = 0; i < 12; ++i) {
    expect_transition(batch, 0, i, histories.history(0)[static_cast<size_t>(i)]);
    expect_transition(batch, 1, i, histories.history(0)[static_cast<size_t>(38 + i)]);
    expect_transition(batch, 2, i, histories.history(1)[static_cast<size_t>(i)]);
    expect_transition(batch, 3, i, histories.history(2)[static_cast<size_t>(38 + i)]);
  }
}

TEST(TransitionWindows, StridedRowsSkipWholeEpisodes) {
  const HistorySet histories = HistorySet::random(1, 60, {9, 5}, 2);
  const TransitionWindows assembler(histories,
                                    {.steps = 60, .horizon = 10, .episode_stride = 2, .length = 30});
  ASSERT_EQ(assembler.samples(), 2);
  const Batch batch = assembler.assemble(std::vector<int64_t>{1});
  for (int64_t i = 0; i < 30; ++i) {
    expect_transition(batch, 0, i, histories.history(0)[static_cast<size_t>(i / 10 * 20 + 10 + i % 10)]);
  }
}

TEST(TransitionWindows, CompressedRowsHoldThePreviousAndTheCurrentRegion) {
  const HistorySet histories = HistorySet::random(1, 25, {9, 5}, 3);
  const auto history = histories.history(0);
  const TransitionWindows assembler(histories, {.steps = 25, .horizon = 5, .region = 10});
  // Query 3 of region 0; the end of region 1; query 4 of the rest.
  const Batch batch = assembler.assemble(std::vector<int64_t>{3, 21, 26});
  ASSERT_TRUE(batch.compressed());
  EXPECT_EQ(batch.states.size(1), 20);
  EXPECT_TRUE(batch.previous.equal(at::tensor({0, 10, 10}, at::kInt)));
  EXPECT_TRUE(batch.current.equal(at::tensor({3, 10, 4}, at::kInt)));
  EXPECT_TRUE(
      batch.query_action.equal(at::tensor({int{history[3].action}, -1, int{history[24].action}}, at::kInt)));
  EXPECT_EQ(batch.query_state[1][0].item<int>(), history[20].state[0]);
  EXPECT_EQ(batch.query_state[2][1].item<int>(), history[24].state[1]);
  for (int64_t i = 0; i < 3; ++i) expect_transition(batch, 0, i, history[static_cast<size_t>(i)]);
  for (int64_t i = 0; i < 20; ++i) expect_transition(batch, 1, i, history[static_cast<size_t>(i)]);
  for (int64_t i = 0; i < 14; ++i) expect_transition(batch, 2, i, history[static_cast<size_t>(10 + i)]);
  EXPECT_EQ(batch.states[0].narrow(0, 3, 17).abs().sum().item<int>(), 0) << "padding is zero";
}

TEST(TransitionWindows, TheEndOfAHistoryIsAskedInTheStateThatWasReached) {
  const HistorySet histories = HistorySet::random(1, 20, {9, 5}, 4);
  const TransitionWindows assembler(histories, {.steps = 20, .horizon = 5, .region = 10});
  const Batch batch = assembler.assemble(std::vector<int64_t>{21});
  EXPECT_EQ(batch.query_state[0][0].item<int>(), histories.history(0)[19].next_state[0]);
  EXPECT_EQ(batch.query_state[0][1].item<int>(), histories.history(0)[19].next_state[1]);
}

/// Where in the histories an episode of these states and actions is: several, where histories repeat
/// themselves.
bool is_episode_of(const HistorySet& histories, int64_t horizon, const Batch& batch, int64_t row,
                   int64_t first) {
  const auto states = batch.states.accessor<int32_t, 3>();
  const auto actions = batch.actions.accessor<int32_t, 2>();
  for (int64_t history = 0; history < histories.histories(); ++history) {
    for (int64_t begin = 0; begin < histories.steps(); begin += horizon) {
      bool same = true;
      for (int64_t i = std::max<int64_t>(0, -first); same && i < horizon; ++i) {
        const Transition& transition = histories.history(history)[static_cast<size_t>(begin + i)];
        same = states[row][first + i][0] == transition.state[0] &&
               states[row][first + i][1] == transition.state[1] &&
               actions[row][first + i] == transition.action;
      }
      if (same) return true;
    }
  }
  return false;
}

TEST(TransitionWindows, BorrowedEpisodesCouldHaveHappenedInTheTask) {
  constexpr int64_t kHorizon = 5, kLength = 17, kStreams = 2, kSamples = 400;
  const HistorySet histories = HistorySet::random(8, 60, {9, 5}, 6);
  const WindowShape shape = {.steps = 60, .horizon = kHorizon, .episode_stride = 2, .length = kLength};
  Borrowing borrowing = {.share = 0.75F, .streams = kStreams, .paying_cells = {}};
  RandomStream stream(9);
  for (int i = 0; i < 8; ++i) borrowing.paying_cells.push_back(static_cast<uint8_t>(stream.below(9)));
  const TransitionWindows plain(histories, shape), windows(histories, shape, borrowing);
  ASSERT_EQ(windows.samples(), plain.samples());
  std::vector<int64_t> samples;
  for (int64_t i = 0; i < kSamples; ++i) samples.push_back(i * windows.samples() / kSamples);
  const Batch found = windows.assemble(samples), own = plain.assemble(samples);
  EXPECT_FALSE(own.current.defined());
  int64_t borrowing_rows = 0;
  std::set<int64_t> counts;
  for (int64_t row = 0; row < kSamples; ++row) {
    const Window window = windows.index().window(samples[static_cast<size_t>(row)]);
    const int64_t borrowed = found.current[row].item<int64_t>(), offset = window.start % kHorizon;
    const uint8_t* cell = &borrowing.paying_cells[static_cast<size_t>(2 * (window.history / kStreams))];
    borrowing_rows += borrowed > 0 ? 1 : 0;
    counts.insert(borrowed);
    ASSERT_LT(borrowed, kLength) << "something is the window's own";
    ASSERT_EQ(borrowed == 0 ? 0 : (borrowed + offset) % kHorizon, 0) << "whole episodes";
    for (const auto part : {&Batch::states, &Batch::actions, &Batch::rewards, &Batch::next_states}) {
      ASSERT_TRUE((found.*part)[row]
                      .narrow(0, borrowed, kLength - borrowed)
                      .equal((own.*part)[row].narrow(0, borrowed, kLength - borrowed)));
    }
    ASSERT_EQ(found.rewards[row].narrow(0, 0, borrowed).abs().sum().item<float>(), 0);
    for (int64_t i = 0; i < borrowed; ++i) {
      ASSERT_FALSE(found.states[row][i][0].item<int>() == cell[0] &&
                   found.states[row][i][1].item<int>() == cell[1]);
      if ((offset + i) % kHorizon == 0 || i == 0) {
        ASSERT_TRUE(is_episode_of(histories, kHorizon, found, row, i == 0 ? -offset : i));
      }
    }
  }
  EXPECT_NEAR(static_cast<double>(borrowing_rows) / kSamples, 0.75, 0.1);
  EXPECT_GT(counts.size(), 10U) << "of one to all but the last episode, from any step on";
  EXPECT_TRUE(windows.assemble(samples).states.equal(found.states)) << "a sample is always the same";
}

}  // namespace
}  // namespace adtrain
