#include "data/TransitionWindows.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>

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

}  // namespace
}  // namespace adtrain
