#include "data/History.h"

#include <algorithm>
#include <initializer_list>

#include <gtest/gtest.h>

#include "data/HistorySamples.h"

namespace adtrain {
namespace {

TEST(History, TellsResetStatesFromTerminalOnes) {
  History history = random_history(12, 4, 6, 3);
  EXPECT_TRUE(history.next_states_are_reset());
  int32_t& last_observation = history.next_states[history.at(5, 2) * 2];
  last_observation = (last_observation + 1) % 9;
  EXPECT_FALSE(history.next_states_are_reset());
}

TEST(History, KeepsTheFirstStreams) {
  History history = random_history(12, 4, 6, 5);
  const History whole = history;
  history.keep_streams(3);
  ASSERT_EQ(history.streams, 3);
  ASSERT_EQ(history.states.size(), 2 * 12 * 3);
  ASSERT_EQ(history.dones.size(), 12 * 3);
  EXPECT_TRUE(history.compress_markers.empty());
  for (int64_t step = 0; step < 12; ++step) {
    for (int64_t stream = 0; stream < 3; ++stream) {
      EXPECT_EQ(history.actions[history.at(step, stream)], whole.actions[whole.at(step, stream)]);
      EXPECT_EQ(history.next_states[2 * history.at(step, stream) + 1],
                whole.next_states[2 * whole.at(step, stream) + 1]);
    }
  }
}

TEST(History, InterleavesTheStreamsOfSeveral) {
  std::vector<History> parts;
  for (uint64_t seed = 1; seed <= 3; ++seed) parts.push_back(random_history(7, 4, 5, seed));
  const History whole = History::interleaved(parts);
  ASSERT_EQ(whole.steps, 7);
  ASSERT_EQ(whole.streams, 12);
  ASSERT_EQ(whole.states.size(), 2 * 7 * 12);
  EXPECT_TRUE(whole.compress_markers.empty());
  for (int64_t step = 0; step < 7; ++step) {
    for (int64_t stream = 0; stream < 12; ++stream) {
      const History& part = parts[static_cast<size_t>(stream % 3)];
      const size_t here = whole.at(step, stream), there = part.at(step, stream / 3);
      ASSERT_EQ(whole.actions[here], part.actions[there]);
      ASSERT_EQ(whole.rewards[here], part.rewards[there]);
      ASSERT_EQ(whole.dones[here], part.dones[there]);
      for (size_t axis = 0; axis < 2; ++axis) {
        ASSERT_EQ(whole.states[2 * here + axis], part.states[2 * there + axis]);
        ASSERT_EQ(whole.next_states[2 * here + axis], part.next_states[2 * there + axis]);
      }
    }
  }
}

TEST(History, FinalReturnIsThatOfTheLastWholeEpisode) {
  History history = random_history(5, 2, 2, 4);  // episodes end after steps 1 and 3; step 4 begins another
  history.rewards = {1, 1, 1, 1, /**/ 2, 0, 3, 1, /**/ 9, 9};
  EXPECT_EQ(history.final_return(), (2 + 3 + 0 + 1) / 2.0);
  std::fill(history.dones.begin(), history.dones.end(), 0);
  EXPECT_EQ(history.final_return(), (16 + 12) / 2.0);
}

/// 400 steps of horizon 50: the last tenth holds 0.8 of an episode.
TEST(History, LateReturnIsOfWholeEpisodes) {
  History history = random_history(400, 2, 50, 4);
  const auto pay_at = [&](std::initializer_list<int64_t> steps, int64_t stream) {
    for (const int64_t step : steps) history.rewards[history.at(step, stream)] = 1;
  };
  std::ranges::fill(history.rewards, 0.0F);
  pay_at({340, 361, 399}, 0);
  pay_at({349, 350, 359}, 1);
  EXPECT_EQ(history.late_return(), 2) << "the last episode is from step 350 on";

  history = random_history(60, 1, 20, 4);
  std::ranges::fill(history.dones, 0);
  std::ranges::fill(history.rewards, 1.0F);
  EXPECT_EQ(history.late_return(), 60) << "everything, where no episode ends";
  history.dones[19] = 1;
  EXPECT_EQ(history.late_return(), 20) << "the last whole one, where none ends in the last tenth";
}

TEST(History, LateReturnIsOfTheEpisodesOfTheLastTenth) {
  History history = random_history(1000, 3, 20, 4);
  double earned = 0;
  for (int64_t step = 900; step < 1000; ++step) {
    for (int64_t stream = 0; stream < 3; ++stream) earned += history.rewards[history.at(step, stream)];
  }
  EXPECT_DOUBLE_EQ(history.late_return(), earned / 3 / 5);
}

}  // namespace
}  // namespace adtrain
